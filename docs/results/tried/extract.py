#!/usr/bin/env python3
"""Extracts what docs/tried.md shows from the full raw files, which are in the history of the repository.

    docs/results/tried/extract.py > docs/results/tried/results.json
"""
import json
import subprocess
import sys
import tomllib

COMMIT = "f087731"
DAY_1, DAY_2 = "tried-strings-2026-11-16", "tried-strings-2026-11-17"


def read(path):
    """Returns a file of docs/results as it was in COMMIT, or None."""
    done = subprocess.run(
        ["git", "show", f"{COMMIT}:docs/results/{path}"], capture_output=True, text=True
    )
    return done.stdout if done.returncode == 0 else None


def key(result):
    """Names a test: the split of an instruction, else the lengths."""
    if result["split"] in ("copy", "reverse", "first", "last", "induct"):
        return result["split"]
    low, high = result.get("shortest", result["length"]), result["length"]
    return str(high) if low == high else f"{low}-{high}"


def scores(results):
    return {key(result): result["exact_match"] for result in results}


def run(folder, what=None):
    """Returns the settings and scores of one run."""
    config = tomllib.loads(read(f"{folder}/config.toml"))
    text = read(f"{folder}/eval.json")
    if text is None:
        text = read(f"{folder}/evaluations.jsonl").strip().splitlines()[-1]
    evaluation = json.loads(text)
    model, name = config["model"], folder.split("/")[1]
    record = {
        "run": folder,
        "what": what or "",
        "model": model["attention"]["name"],
        "optimizer": "muon" if "muon" in name else config.get("optimizer", "adamw"),
        "lr": config["lr"],
        "steps": evaluation.get("step", config["steps"]),
        "batch": config["batch"],
        "heads": model.get("heads", 4),
        "dropout": model["dropout"],
        "seed": config["seed"],
    }
    for setting in ("sharpness", "embedding_dropout"):
        if setting in model:
            record[setting] = model[setting]
    if "leak" in model["attention"]:
        record["leak"] = model["attention"]["leak"]
    return record | scores(evaluation["results"])


def table(folder, model, what, task=None, seed=None):
    """Returns a record per run of a results.json."""
    runs = json.loads(read(f"{folder}/results.json"))["runs"]
    fits = lambda r: r["model"] == model and task in (None, r["task"]) and seed in (None, r["seed"])
    return [
        {"run": folder, "what": what, "model": model, "seed": r["seed"], "steps": r["step"]}
        | scores(r["results"])
        for r in runs
        if fits(r)
    ]


def mean(folder, model, what, task=None):
    """Returns one record with the means over the seeds of a results.json."""
    rows = table(folder, model, what, task)
    tests = [name for name in rows[0] if name not in ("run", "what", "model", "seed", "steps")]
    of = lambda name: sum(row.get(name, 0.0) for row in rows) / len(rows)
    first = {"run": folder, "what": what, "model": model, "seeds": len(rows), "steps": rows[0]["steps"]}
    return first | {name: of(name) for name in tests}


def confused(path, what):
    """Returns how often answers among 300 symbols are wrong, by how many symbols before them are ambiguous."""
    lines = read(path).splitlines()
    start = next(i for i, line in enumerate(lines) if line.split()[:2] == ["tokens", "answers"])
    record = {"run": path, "what": what}
    for line in lines[start + 1 : start + 4]:
        tokens, answers, wrong, _ = line.split()
        record[{"0": "none", "1": "one", "2": "two"}[tokens]] = int(wrong) / int(answers)
    return record


def group(day, *rows):
    return [run(f"{day}/{name}", what) for name, what in rows]


REPEATS = "copy-256-muon-leak-1-1000-steps-2-heads-sharpness-0.1-embedding-dropout-0.1"
MUON = "unique-muon-leak-1"
GATES = f"{MUON}-600-steps-gates-by-adamw"

groups = {
    "copy_adamw": group(
        DAY_1,
        ("unique-dropout-0", "stopped early"),
        ("unique-dropout-0.01", ""),
        ("unique-dropout-0.1", ""),
        ("unique-dropout-0.1-seed-2", ""),
        ("unique-dropout-0.1-2500-steps", ""),
        ("unique-dropout-0.2-2000-steps", ""),
        ("unique-dropout-0.1-2-heads", ""),
        ("unique-dropout-0.1-2-heads-batch-16", ""),
        ("unique-dropout-0.1-2-heads-2000-steps", ""),
        ("unique-dropout-0.1-2-heads-2000-steps-seed-2", ""),
        ("unique-dropout-0.1-2-heads-3000-steps", ""),
        ("unique-dropout-0.1-2-heads-batch-64", ""),
        ("unique-dropout-0.1-2-heads-4000-steps-seed-3", ""),
        ("unique-dropout-0.1-2-heads-batch-64-lr-5e-4", "half the learning rate"),
        ("unique-dropout-0.1-2-heads-batch-64-longer-strings-seed-4", "no short strings at the end"),
        ("unique-1200-steps-embeddings-1-seed-4", "embeddings begin within 1 of 0"),
    ),
    "copy_leak": table("copy-2026-11-16", "tra", "AdamW, no leak", "unique", 4)
    + table("copy-leak-2026-11-16", "tra-leak", "AdamW, leak for all dropped keys", seed=4)
    + group(
        DAY_2,
        ("unique-leak-1-seed-4", "AdamW, leak for empty queries"),
        ("unique-muon-1200-steps", "Muon, no leak"),
        ("unique-muon-1200-steps-seed-2", "Muon, no leak"),
        ("unique-muon-leak-1-1200-steps", "Muon, leak for empty queries"),
        ("unique-muon-leak-1-lr-2e-3-1000-steps", "the same, lower learning rate"),
    ),
    "copy_sharpness": group(
        DAY_2,
        ("unique-muon-leak-1-lr-2e-3-500-steps", "times 1 (no change)"),
        ("unique-muon-leak-1-lr-2e-3-500-steps-always-half-as-sharp", "times 0.5, always"),
        ("unique-muon-leak-1-lr-2e-3-500-steps-sharpness-0.3", "times 0.3 to 1, drawn"),
        ("unique-muon-leak-1-lr-2e-3-500-steps-sharpness-0.3-seed-4", "times 0.3 to 1, drawn"),
        (
            "unique-muon-leak-1-lr-2e-3-500-steps-dropout-0.01-sharpness-0.3-seed-4",
            "times 0.3 to 1, drawn, dropout 0.01",
        ),
    ),
    "copy_steps": group(
        DAY_2,
        ("unique-muon-leak-1-lr-2e-3-1000-steps-sharpness-0.3", ""),
        ("unique-muon-leak-1-lr-2e-3-1000-steps-sharpness-0.3-seed-2", ""),
        ("unique-muon-leak-1-lr-2e-3-1000-steps-sharpness-0.3-seed-3", ""),
        ("unique-muon-leak-1-lr-2e-3-1000-steps-sharpness-0.3-seed-4", ""),
        ("unique-muon-leak-1-lr-2e-3-1000-steps-dropout-0.01-sharpness-0.3", ""),
        ("unique-muon-leak-1-lr-2e-3-1000-steps-dropout-0.01-sharpness-0.3-seed-2", ""),
        ("unique-muon-leak-1-600-steps-dropout-0.01-sharpness-0.1", ""),
        ("unique-muon-leak-1-800-steps-dropout-0.01-sharpness-0.2-seed-3", ""),
    ),
    "copy_embedding": [
        row | {"embedding_dropout": dropout}
        for folder, dropout in (
            (f"{DAY_2}/table-copy-without-embedding-dropout", "none beyond dropout"),
            ("copy-2026-11-17", "0.1"),
        )
        for row in table(folder, "tra", "")
    ],
    "copy_not": group(
        DAY_2,
        ("unique-muon-leak-1-lr-2e-3-1-head", "one head per layer"),
        ("unique-muon-leak-1-weight-decay-1", "weight decay of 1"),
        ("unique-muon-leak-1-lr-2e-3-500-steps-pressure-0.01", "a push below the threshold for kept keys"),
        ("unique-muon-leak-1-lr-2e-3-1000-steps-sharpness-0.3-hold-1", "a gradient for a key kept alone"),
        ("unique-muon-leak-1-lr-2e-3-1000-steps-sharpness-0.3-hold-1-seed-4", "a gradient for a key kept alone"),
        (GATES, "gates by AdamW, all else by Muon"),
        (f"{GATES}-seed-4", "gates by AdamW, all else by Muon"),
        (f"{GATES}-sharpness-0.1", "gates by AdamW, all else by Muon"),
        (f"{GATES}-stretch-6-all-alike", "distances times 1 to 6 in training"),
        (f"{GATES}-stretch-6-all-alike-seed-4", "distances times 1 to 6 in training"),
        (f"{GATES}-stretch-6", "the same, for slow gates only"),
        (f"{GATES}-stretch-6-seed-4", "the same, for slow gates only"),
        ("unique-muon-leak-1-lr-2e-3-500-steps-sharpness-0.3-noise-1-seed-4", "noise on the queries"),
        ("unique-muon-leak-1-800-steps-dropout-0.01-sharpness-0.1-of-scores-seed-3", "flatter scores, full distances"),
        ("unique-muon-leak-1-800-steps-dropout-0.01-sharpness-0.1-of-scores-seed-4", "flatter scores, full distances"),
        ("unique-leak-1-800-steps-dropout-0.01-sharpness-0.2-seed-3", "AdamW with a flatter softmax"),
        ("unique-leak-1-800-steps-dropout-0.01-sharpness-0.2-seed-4", "AdamW with a flatter softmax"),
    ),
    "copy_rivals": [
        row
        for model in ("rope", "fox")
        for row in table("copy-2026-11-16", model, "AdamW, dropout 0.1", "unique")
        + group(DAY_2, (f"unique-muon-lr-2e-3-1000-steps-sharpness-0.3-{model}", "Muon, sharpness 0.3, dropout 0.1"))
        + table(f"{DAY_2}/table-copy-without-embedding-dropout", model, "Muon, sharpness 0.1")
        + table("copy-2026-11-17", model, "the same and embedding dropout")
    ],
    "repeats": table("copy-2026-11-16", "tra", "as `tra reproduce repeats`: AdamW, four heads", "256")
    + group(
        DAY_2,
        ("copy-256-leak-1-2000-steps-4-heads-sharpness-0.3-embedding-dropout-0.1", "AdamW, four heads, flatter softmax"),
        ("copy-256-muon-leak-1-1000-steps-4-heads-sharpness-0.3-embedding-dropout-0.1", "Muon, four heads, flatter softmax"),
        (REPEATS, "Muon, two heads, softmax flatter still"),
        (f"{REPEATS}-seed-2", "Muon, two heads, softmax flatter still"),
        (f"{REPEATS}-seed-3", "Muon, two heads, softmax flatter still"),
        (REPEATS.replace("1000", "1400"), "Muon, two heads, softmax flatter still"),
        (
            "copy-256-muon-leak-1-1000-steps-4-heads-sharpness-0.3-embedding-dropout-0.1-fewest-8",
            "four heads, strings of 8 to 256 different symbols",
        ),
        (f"{REPEATS}-fewest-32", "two heads, strings of 32 to 256 different symbols"),
    )
    + table(f"{DAY_2}/table-repeats-6-layers", "tra-6-layers", "64 symbols, six layers")
    + table("copy-2026-11-16", "tra", "64 symbols, four layers", "64"),
    "confused": [
        confused("copy-2026-11-16/alike-256.txt", "256 symbols, AdamW"),
        confused("copy-2026-11-16/alike-64.txt", "64 symbols, AdamW"),
        confused("copy-2026-11-16/alike-26.txt", "26 symbols, AdamW"),
        confused(f"{DAY_2}/{REPEATS}/heads-300.txt", "256 symbols, Muon, seed 1"),
        confused(f"{DAY_2}/{REPEATS}-seed-2/heads-300.txt", "256 symbols, Muon, seed 2"),
        confused(f"{DAY_2}/{REPEATS}-seed-3/heads-300.txt", "256 symbols, Muon, seed 3"),
    ],
    "induct": [
        mean(f"{DAY_2}/table-induct-adamw", "tra", "AdamW"),
        mean("induct-2026-11-17", "tra", "Muon, sharpness 0.3, embedding dropout"),
        {"seeds": 1} | run(f"{DAY_2}/induct-muon-leak-1-1000-steps-sharpness-0.1-embedding-dropout-0.1", "the same, sharpness 0.1"),
        mean(f"{DAY_2}/table-induct-adamw", "rope", "AdamW"),
        mean("induct-2026-11-17", "rope", "Muon, sharpness 0.3, embedding dropout"),
    ],
    "instruct": table("instruct-2026-11-16", "tra", "AdamW", "unique")
    + group(
        DAY_1,
        ("instruct-width-128-leak-1-embeddings-1", "AdamW, half the width, twice the batch"),
        ("instruct-width-128-leak-1-embeddings-1-seed-2", "AdamW, half the width, twice the batch"),
    )
    + group(
        DAY_2,
        ("instruct-muon-leak-1", "Muon, leak"),
        ("instruct-muon-leak-1-lr-2e-3", "the same, lower learning rate"),
        ("instruct-muon-leak-1-lr-2e-3-4-heads-sharpness-0.3-seed-2", "the same, four heads, sharpness 0.3"),
    )
    + table(f"{DAY_2}/table-instruct-2-heads", "tra", "strings that grow more slowly")
    + table("instruct-2026-11-17", "tra", "as `tra reproduce instruct` now"),
    "instruct_rivals": [
        row
        for model in ("rope", "fox")
        for row in group(DAY_2, (f"instruct-muon-lr-2e-3-{model}", "Muon, two heads"))
        + table(f"{DAY_2}/table-instruct-2-heads", model, "strings that grow more slowly")
        + table("instruct-2026-11-17", model, "as `tra reproduce instruct` now")
    ],
    "instruct_short": [
        {"what": what, "loss": float(line.split()[1])}
        for name, what in (
            ("instruct-short-leak-1", "embeddings begin within 0.01, the default"),
            ("instruct-short-leak-1-embeddings-0.1", "within 0.1"),
            ("instruct-short-leak-1-embeddings-1", "within 1"),
            ("instruct-short-leak-1-embeddings-3", "within 3"),
            ("instruct-short-embeddings-1", "within 1, no leak"),
            ("instruct-short-leak-1-embeddings-1-lr-5e-4", "within 1, half the learning rate"),
            ("instruct-short-leak-1-embeddings-1-lr-2e-3", "within 1, twice the learning rate"),
            ("instruct-short-leak-1-embeddings-0.1-tied", "within 0.1, one table for embedding and output"),
        )
        for line in read(f"{DAY_1}/instruct-short.txt").splitlines()
        if line.split()[0] == name
    ],
}

json.dump({"commit": COMMIT, **groups}, sys.stdout, indent=1)
print()
