"""The same engine with a device per core, ``devices=2`` on two of them: for small matrix products."""

from benchmarks.speed import ours

if __name__ == "__main__":
    ours.main(split=True)
