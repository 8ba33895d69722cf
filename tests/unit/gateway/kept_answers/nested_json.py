"""JSON of any depth."""


def nested(levels: int) -> object:
    value: object = []
    for level in range(levels - 1):
        value = [value] if level % 2 else {"v": value}
    return value
