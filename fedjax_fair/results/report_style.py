"""How the report page looks: light and dark, on a screen, a telephone and paper."""

NARROW = "40rem"
"""Up to this width it is a telephone's."""

STYLE = """
:root { color-scheme: light dark; --page: #fff; --ink: #1a1a1a; --soft: #5c5c5c; --line: #ddd; --box: #f5f5f5;
  --care: #fff6e0; --edge: #e0a100; }
@media screen and (prefers-color-scheme: dark) {
  :root { --page: #16181b; --ink: #e6e6e6; --soft: #a3a3a3; --line: #3a3d42; --box: #22252a; --care: #2e2712;
    --edge: #c99700; }
  figure img { filter: invert(.91) hue-rotate(180deg); } figure.large img { filter: none; border-radius: 4px; }
}
body { font: 16px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 0 auto; padding: 1rem; color: var(--ink);
  background: var(--page); }
h1 { font-size: 1.6rem; margin: .5rem 0; overflow-wrap: anywhere; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
p, li { max-width: 46rem; }
.care { background: var(--care); border-left: 4px solid var(--edge); padding: .6rem 1rem; margin: 1rem 0; }
.care ul { margin: .25rem 0 0; padding-left: 1.2rem; }
.wide { overflow-x: auto; }
.wide, pre { scrollbar-width: thin; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th { white-space: normal; overflow-wrap: break-word; vertical-align: bottom; min-width: 3.4rem; }
td:first-child { white-space: normal; overflow-wrap: break-word; min-width: 9rem; }
.hint { display: none; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: var(--page); }
td small, .legend { color: var(--soft); } .legend { font-size: .9rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 21rem), 1fr)); gap: 1.5rem; }
figure { margin: 0; } figure img { width: 100%; } figcaption { font-size: .9rem; color: var(--soft); }
figure.large { grid-column: 1 / -1; } .first { max-width: 30rem; margin-top: 1rem; }
summary { font-size: 1.15rem; font-weight: bold; margin: 1.5rem 0 .5rem; cursor: pointer; }
pre { background: var(--box); padding: .75rem; white-space: pre-wrap; overflow-wrap: anywhere; font-size: .85rem; }
@media screen and (max-width: 40rem) {
  .wide table, .wide thead, .wide tbody { display: block; }
  .wide tr { display: grid; grid-template-columns: repeat(var(--figures), minmax(3.4rem, 1fr));
    border-bottom: 1px solid var(--line); padding: .25rem 0; }
  th, td { padding: .1rem .3rem; font-size: .85rem; border: 0; white-space: normal; overflow-wrap: anywhere; }
  th { padding: .1rem .15rem; font-size: .75rem; min-width: 0; }
  th:first-child { display: none; } td:first-child { grid-column: 1 / -1; justify-self: start; font-weight: 600; }
  td small { display: block; } .hint { display: block; margin: 0; font-size: .85rem; color: var(--soft); }
}
@media print {
  body { max-width: none; padding: 0; font-size: 9pt; } th, td { padding: .15rem .4rem; font-size: 8pt; }
  .wide { overflow: visible; } .figures { grid-template-columns: 1fr 1fr; } p, li { max-width: none; }
  figure, tr, .care, pre { break-inside: avoid; } h2 { break-after: avoid; }
}
"""
