"""`python -m gateway` is `breakeven`."""

from gateway.cli import main

if __name__ == "__main__":
    main()
