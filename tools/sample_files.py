"""Write the small files of the page "From files to a model": products, mails and tagged texts.

python tools/sample_files.py

They are made up by a rule with chance in it, so that there is something to learn and something to miss.
"""

from __future__ import annotations

import csv
import json
import random
import shutil
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "sample"
GOODS = {
    "scarf": ["clothes"], "shirt": ["clothes"], "boots": ["clothes", "outdoor"], "tent": ["outdoor"],
    "lamp": ["home"], "rug": ["home"], "kettle": ["home", "kitchen"], "pan": ["kitchen"],
}  # fmt: skip
CLOTH = {"silk": 60, "wool": 40, "cotton": 15, "steel": 45, "plastic": 5}
SUBJECTS = {
    "invoices": ["invoice {n} is due", "your payment of {n} euro", "reminder: unpaid bill {n}"],
    "lunch": ["lunch at {n}?", "pizza or salad today", "table for {n} at the corner"],
    "servers": ["disk {n} is full", "restart of host {n} tonight", "certificate of host {n} expires"],
}
BODIES = {
    "invoices": "Please pay the amount on the account below. Kind regards, accounts department",
    "lunch": "Who comes along? We meet at the door and walk over together. See you",
    "servers": "The monitoring reports a fault. Please look at the logs and restart the service",
}
SENTENCES = {
    "python": ["how do I sort a list of tuples in python", "python loop over two lists at once"],
    "sql": ["join two tables and count rows in sql", "sql query with group by is slow"],
    "plots": ["change the axis of a matplotlib figure", "bar chart with two colours and a legend"],
    "speed": ["why is this so slow", "make this faster for a million rows"],
}


def shop(rng: random.Random, rows: int) -> list[dict[str, object]]:
    found = []
    for _ in range(rows):
        good, cloth = rng.choice(list(GOODS)), rng.choice(list(CLOTH))
        price = CLOTH[cloth] * rng.uniform(0.8, 1.5)
        tags = sorted(set(GOODS[good]) | ({"premium"} if price > 50 else set()))
        words = [rng.choice(["new", "classic", "light", "large"]), cloth, good, f"no.{rng.randint(100, 999)}"]
        found.append(
            {
                "title": " ".join(words),
                "colour": rng.choice(["red", "blue", "green", ""]),
                "price": "" if rng.random() < 0.05 else round(price, 2),
                "tags": ";".join(tags),
            }
        )
    return found


def write_table(path: Path, rows: list[dict[str, object]]) -> None:
    with open(path, "w", newline="") as out:
        table = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def write_mails(folder: Path, rng: random.Random, each: int) -> None:
    for name, subjects in SUBJECTS.items():
        (folder / name).mkdir(parents=True)
        for k in range(each):
            words = BODIES[name].split()
            rng.shuffle(words)
            subject = rng.choice(subjects).format(n=rng.randint(2, 99))
            (folder / name / str(k)).write_text(
                f"From: me@example.org\nSubject: {subject}\n\n{' '.join(words)}\n"
            )


def write_texts(path: Path, rng: random.Random, rows: int) -> None:
    with open(path, "w") as out:
        for k in range(rows):
            tags = sorted(rng.sample(list(SENTENCES), rng.choice([1, 1, 2])))
            body = ", ".join(rng.choice(SENTENCES[tag]) for tag in tags)
            out.write(json.dumps({"id": f"q{k}", "body": body, "tags": tags}) + "\n")


def main() -> None:
    rng = random.Random(0)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    write_table(FOLDER / "shop.csv", shop(rng, 120))
    new = shop(rng, 5)
    write_table(FOLDER / "new.csv", [{k: v for k, v in row.items() if k != "tags"} for row in new])
    write_mails(FOLDER / "mails", rng, 10)
    write_mails(FOLDER / "new-mails", rng, 2)
    write_texts(FOLDER / "questions.jsonl", rng, 120)
    write_texts(FOLDER / "later.jsonl", rng, 30)


if __name__ == "__main__":
    main()
