"""What an experiment leaves behind: the table, a folder of files, and one page that shows them."""
