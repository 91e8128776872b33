#!/usr/bin/python3
"""Collectives of Lockstep beside those of Open MPI, MPICH and Gloo, taking turns; prints a table.

  bench/peers/collectives.py                  two ranks, about two minutes
  bench/peers/collectives.py --ranks 4 --sizes 64K,1M,16M
  bench/peers/collectives.py --install        installs the peers' Debian packages first

All programs are alive at once. In every round each measures each operation and size, one after the
other, so that whatever else the machine does meets all of them (turns.h says what a turn is). The
figures are over rounds: min, median and max of a program's time. The ratio of a round is the best
peer's time over ours; its median, min and max follow. Absolute times compare inside one run only.

A peer that is not installed is said to be absent. "Open MPI" is the best of three settings.
"""
import argparse
import os
import select
import shutil
import statistics
import subprocess
import sys
import tempfile

PACKAGES = ["openmpi-bin", "libopenmpi-dev", "mpich", "libmpich-dev", "libgloo-dev"]
OPERATIONS = ["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast"]
# bytes -> calls a turn. 8 bytes twice: after a barrier, and a hundred calls back to back.
CALLS = {8: 300, 64 << 10: 100, 1 << 20: 30, 4 << 20: 10, 16 << 20: 5, 64 << 20: 3, 256 << 20: 2}
CROWDED = 10  # where ranks share cores a call may take a hundred times as long: so many times fewer
BATCH = 100
TURN_SECONDS = 60  # a program that takes longer hangs
OURS = {"heap": "Lockstep", "ordinary": "Lockstep, ordinary memory", "public": "Lockstep, public call"}
NO_CMA = ["--mca", "pml", "ob1", "--mca", "btl", "vader,self",
          "--mca", "btl_vader_single_copy_mechanism", "none"]
RABENSEIFNER = ["--mca", "coll_tuned_use_dynamic_rules", "1",
                "--mca", "coll_tuned_allreduce_algorithm", "6"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--operations", default=",".join(OPERATIONS))
    parser.add_argument("--sizes", default="", help="such as 8,1M; default: 8 bytes to 256 MiB")
    parser.add_argument("--build", default="build", help="build folder of `make build`")
    parser.add_argument("--install", action="store_true", help="apt-get install the peers")
    parser.add_argument("--ours-only", action="store_true", help="no peers")
    parser.add_argument("--lean", action="store_true", help="heap memory and each peer's default "
                        "setting alone: of all there are eight programs, of twice the largest size "
                        "a rank each")
    parser.add_argument("--priority", action="store_true",
                        help="run everything at nice -20 (root), where others use the machine")
    args = parser.parse_args()
    args.sizes = [size_of(text) for text in args.sizes.split(",")] if args.sizes else list(CALLS)
    if unknown := set(args.sizes) - set(CALLS):
        parser.error(f"sizes are {', '.join(map(size_text, CALLS))}")
    args.operations = args.operations.split(",")
    if unknown := set(args.operations) - set(OPERATIONS):
        parser.error(f"no such operation: {', '.join(unknown)}; there are {', '.join(OPERATIONS)}")
    return args


def size_of(text):
    units = {"K": 10, "M": 20}
    return int(text[:-1]) << units[text[-1]] if text[-1] in units else int(text)


def note(text):
    print(text, file=sys.stderr, flush=True)


def build(args):
    """Builds what can be built; returns {program: path} and says what is absent."""
    programs = {}
    root = os.path.abspath(args.build)
    if not os.path.exists(f"{root}/CMakeCache.txt"):
        subprocess.run(["cmake", "--preset", "release", "-B", root], check=True,
                       stdout=subprocess.DEVNULL)
    cmake = ["cmake", "--build", root, "--target"]
    subprocess.run(cmake + ["bench_lockstep_ranks"], check=True, stdout=subprocess.DEVNULL)
    programs["lockstep"] = f"{root}/bin/bench_lockstep_ranks"
    if args.ours_only:
        return programs
    for mpi in ("openmpi", "mpich"):
        if shutil.which(f"mpicxx.{mpi}") is None or shutil.which(f"mpirun.{mpi}") is None:
            note(f"# absent: {mpi} (Debian packages: {' '.join(p for p in PACKAGES if mpi in p)})")
            continue
        path = f"{root}/bin/bench_mpi_ranks.{mpi}"
        subprocess.run([f"mpicxx.{mpi}", "-O3", "-std=c++20", "-I.", "bench/peers/mpi_ranks.cpp",
                        "-o", path], check=True)
        programs[mpi] = path
    if os.path.exists("/usr/include/gloo/config.h"):
        subprocess.run(cmake + ["bench_gloo_ranks"], check=True, stdout=subprocess.DEVNULL)
        programs["gloo"] = f"{root}/bin/bench_gloo_ranks"
    else:
        note("# absent: Gloo (Debian package: libgloo-dev)")
    return programs


class Program:
    """One library, its ranks alive and waiting for orders."""

    def __init__(self, command, ranks, max_bytes):
        self.folder = tempfile.mkdtemp(prefix="lockstep-bench-")
        for name in [f"{rank}.in" for rank in range(ranks)] + ["out"]:
            os.mkfifo(f"{self.folder}/{name}")
        environment = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1",
                           OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                           GLOO_SOCKET_IFNAME="lo")
        place = command.index("FOLDER")
        command = command[:place] + [self.folder, str(max_bytes)] + command[place + 1:]
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)
        # Opened for both ways, a pipe waits for nobody: a program that cannot start is found out.
        self.orders = [os.open(f"{self.folder}/{rank}.in", os.O_RDWR) for rank in range(ranks)]
        self.answers = os.open(f"{self.folder}/out", os.O_RDWR)

    def turn(self, operation, size, calls, batch):
        """Microseconds of a call, or what the library says it cannot."""
        for pipe in self.orders:
            os.write(pipe, f"{operation} {size} {calls} {batch}\n".encode())
        for _ in range(TURN_SECONDS):
            if select.select([self.answers], [], [], 1)[0]:
                break
            if self.process.poll() is not None:
                sys.exit(f"ended with {self.process.returncode}: {self.process.args}")
        else:
            sys.exit(f"no answer in {TURN_SECONDS} s to {operation} {size}: {self.process.args}")
        answer = os.read(self.answers, 4096).decode().strip()
        if answer.startswith("unsupported"):
            return answer
        microseconds, wrong = answer.split()
        if wrong != "0":
            sys.exit(f"{operation} of {size} bytes gave {wrong} wrong values: {self.process.args}")
        return float(microseconds)

    def close(self):
        for pipe in self.orders:
            os.write(pipe, b"end\n")
        for pipe in self.orders + [self.answers]:
            os.close(pipe)
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
        shutil.rmtree(self.folder)


def start(programs, args):
    """Ours by kind of memory, peers by name and setting."""
    ranks = str(args.ranks)
    crowded = args.ranks > len(os.sched_getaffinity(0))
    kinds = ["heap"] if args.lean else list(OURS)
    commands = {OURS[kind]: [programs["lockstep"], "FOLDER", ranks, kind] for kind in kinds}
    if "openmpi" in programs:
        mpirun = ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "-np", ranks]
        settings = {"default": [], "no CMA": NO_CMA, "Rabenseifner": RABENSEIFNER}
        if args.lean:
            settings = {"default": []}
        for name, options in settings.items():
            commands[f"Open MPI ({name})"] = mpirun + options + [programs["openmpi"], "FOLDER"]
    if "mpich" in programs:
        commands["MPICH"] = ["mpirun.mpich", "-np", ranks, programs["mpich"], "FOLDER"]
    if "gloo" in programs:
        commands["Gloo"] = [programs["gloo"], "FOLDER", ranks]
    if crowded:
        note(f"# {ranks} ranks share {len(os.sched_getaffinity(0))} cores")
    return {name: Program(command, args.ranks, max(args.sizes))
            for name, command in commands.items()}


def take_priority():
    """Over other users of the machine, whose jobs the kernel weighs by session."""
    os.environ["LOCKSTEP_BENCH_PRIORITY"] = "1"  # the ranks do the same: turns.h
    os.setpriority(os.PRIO_PROCESS, 0, -20)
    if os.path.exists("/proc/self/autogroup"):
        if os.getpid() != os.getpgrp():
            os.setsid()
        with open("/proc/self/autogroup", "w") as group:
            group.write("-20")


def is_ours(name):
    return name in OURS.values()


def shown(times):
    if not times:
        return "absent"
    digits = 2 if statistics.median(times) < 100 else 0
    return " / ".join(f"{time:.{digits}f}" for time in
                      (min(times), statistics.median(times), max(times)))


def size_text(size):
    for unit, shift in (("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift:
            return f"{size >> shift} {unit}"
    return f"{size} B"


def library(name):
    return name.split(" (")[0]


def row(times, rounds):
    """times: {program: [microseconds a round]}. The cells of one operation and size."""
    peers = [name for name in times if not is_ours(name)]
    cells = [shown(times.get(OURS[kind], [])) for kind in ("heap", "ordinary")]
    for peer in ("Open MPI", "MPICH", "Gloo"):
        settings = [times[name] for name in peers if library(name) == peer]
        best = min(settings, key=statistics.median) if settings else []
        cells.append(shown(best))
    for kind in ("heap", "ordinary"):
        ours = times.get(OURS[kind], [])
        if not peers or not ours:
            cells.append("-")
            continue
        ratios = [min(times[name][i] for name in peers) / ours[i] for i in range(rounds)]
        of_medians = min(statistics.median(times[name]) for name in peers) / statistics.median(ours)
        cells.append(f"**{of_medians:.2f}** ({min(ratios):.2f} to {max(ratios):.2f})")
    return cells


def measure(running, args):
    """{(operation, size, batch): {program: [microseconds]}}"""
    results = {}
    unable = {}
    for number in range(args.rounds):
        note(f"# round {number + 1} of {args.rounds}")
        for operation in args.operations:
            for size in args.sizes:
                calls = CALLS[size]
                if args.ranks > len(os.sched_getaffinity(0)):
                    calls = max(2, calls // CROWDED)
                if size // 4 < args.ranks and operation not in ("all_reduce", "broadcast"):
                    continue  # not an element a rank
                for batch in (1, BATCH) if size == 8 else (1,):
                    times = results.setdefault((operation, size, batch), {})
                    for name, program in running.items():
                        if (operation, name) in unable or name == OURS["public"] and size > 8:
                            continue
                        time = program.turn(operation, size,
                                            max(1, calls // 10) if batch > 1 else calls, batch)
                        if isinstance(time, str):
                            unable[operation, name] = time
                            note(f"# {name}: {operation} {time}")
                            continue
                        times.setdefault(name, []).append(time)
    return results


def report(results, args):
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo")
                  if line.startswith("model name")), "unknown processor")
    print(f"{args.ranks} ranks, {len(os.sched_getaffinity(0))} cores of {model}; float32; "
          f"{args.rounds} rounds in turns; us: min / median / max over rounds; "
          f"load at the end {os.getloadavg()[0]:.1f}.\n")
    head = ["operation", "size", "heap, us", "ordinary, us", "Open MPI", "MPICH", "Gloo",
            "best peer / heap", "best peer / ordinary"]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for (operation, size, batch), times in results.items():
        text = size_text(size) + (" back to back" if batch > 1 else "")
        print("| " + " | ".join([operation, text] + row(times, args.rounds)) + " |")
    print("\n| public call of 8 B | engine, us | public, us | more |\n|---|---|---|---|")
    for (operation, size, batch), times in results.items():
        if size == 8 and OURS["public"] in times:
            engine, public = times[OURS["heap"]], times[OURS["public"]]
            more = statistics.median(public) - statistics.median(engine)
            text = operation + (" back to back" if batch > 1 else "")
            print(f"| {text} | {shown(engine)} | {shown(public)} | {more:.2f} |")


def main():
    args = arguments()
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
    if args.install:
        subprocess.run(["apt-get", "install", "-y", "--no-install-recommends"] + PACKAGES, check=True)
    programs = build(args)
    if args.priority:
        take_priority()
    running = start(programs, args)
    try:
        results = measure(running, args)
    finally:
        for program in running.values():
            program.close()
    report(results, args)


if __name__ == "__main__":
    main()
