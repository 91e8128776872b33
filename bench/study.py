#!/usr/bin/python3
"""What precision, large batches, optimizers and norms do to the loss, several seeds each.

  bench/study.py precision          docs/study/precision.json and .svg, and its table in docs/study.md
  bench/study.py scaling
  bench/study.py optimizers
  bench/study.py norms              after `lockstep data prepare fashion`

Each trains with `lockstep train`, run after run, for minutes; losses have the same bits each time on one
kind of processor, on any number of ranks except where norms span them.
"""
import argparse
import datetime
import importlib
import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from studies import curves  # noqa: E402
from studies.training import Trainer  # noqa: E402

STUDIES = ["precision", "scaling", "optimizers", "norms"]


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        name = re.search(r"model name\s*:\s*(.*)", info.read())
    return name[1] if name else "unknown"


def trained(args, study, path):
    known = []
    if args.go_on and os.path.exists(path):
        with open(path, encoding="utf-8") as there:
            known = json.load(there)["runs"]
    head = {"study": args.study,
            "command": f"bench/study.py {args.study}" + " --quick" * args.quick,
            "date": datetime.date.today().isoformat(), "processor": processor(),
            "cores": os.cpu_count(), "ranks": study.RANKS,
            "load_at_start": round(os.getloadavg()[0], 1)}

    def result(runs):
        return {**head, "minutes": round(sum(run["seconds"] for run in runs) / 60, 1),
                "seeds": sorted({run["seed"] for run in runs}), "runs": runs}

    trainer = Trainer(args.build, study.RANKS, args.quick, known,
                      lambda runs: write_json(path, result(runs)))
    study.train(trainer)
    return result(trainer.runs)


def write_json(path, result):
    """A line a run, so that two results compare line by line."""
    head = {key: value for key, value in result.items() if key != "runs"}
    lines = ",\n".join(json.dumps(run) for run in result["runs"])
    with open(path, "w", encoding="utf-8") as out:
        out.write(f'{json.dumps(head)[:-1]},\n"runs": [\n{lines}\n]}}\n')


def section(args, study, result):
    """What stands between the study's marks on the page."""
    said = (f"`{result['command']}`, {result['date']}, {len(result['runs'])} runs on "
            f"{result['ranks']} ranks in {result['minutes']} minutes, {result['cores']} cores of "
            f"{result['processor']}, load {result['load_at_start']} at the start; every run "
            f"is in [{args.study}.json](study/{args.study}.json).")
    return "\n".join([said, "", *study.table(result["runs"]), "",
                      f"![{args.study}](study/{args.study}.svg)"])


def write_page(page, name, text):
    """Puts the text between the marks; a page that is not there yet begins as the one in docs."""
    with open(page if os.path.exists(page) else "docs/study.md", encoding="utf-8") as old:
        before, rest = old.read().split(f"<!-- {name} -->\n")
    after = rest.split(f"<!-- end of {name} -->\n")[1]
    with open(page, "w", encoding="utf-8") as out:
        out.write(f"{before}<!-- {name} -->\n{text}\n<!-- end of {name} -->\n{after}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--quick", action="store_true", help="a few steps: figures of no worth")
    parser.add_argument("--go-on", action="store_true",
                        help="train only what the .json of a run that was stopped has not")
    parser.add_argument("--draw", action="store_true",
                        help="train nothing: picture and table of the .json that is there")
    parser.add_argument("--out", default="docs", help="folder of study.md and study/")
    parser.add_argument("--build", default="build", help="build folder of `make build`")
    args = parser.parse_args()
    args.out = os.path.abspath(args.out)
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    study = importlib.import_module(f"studies.{args.study}")
    base = os.path.join(args.out, "study", args.study)
    os.makedirs(os.path.dirname(base), exist_ok=True)
    if args.draw:
        with open(base + ".json", encoding="utf-8") as there:
            result = json.load(there)
    else:
        result = trained(args, study, base + ".json")
        write_json(base + ".json", result)
    with open(base + ".svg", "w", encoding="utf-8") as out:
        out.write(curves.svg(study.panels(result["runs"])))
    write_page(os.path.join(args.out, "study.md"), args.study, section(args, study, result))


if __name__ == "__main__":
    main()
