"""python -m tools.docs writes the generated pages; make docs does."""

from tools.docs import write

if __name__ == "__main__":
    write()
