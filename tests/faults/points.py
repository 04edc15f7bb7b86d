"""What the fault tests share: they run the points of their scenarios side by side and count."""
import concurrent.futures
import os


def run(scenarios, sample):
    """Runs every point of each (name, scenario), or about `sample` of them, always the same. None: all. A scenario has
    `points` and wrong(point), which gives whether the fault was reached and what went wrong. Gives the exit status: 1
    if anything did, or if fewer than half of the faults were reached."""
    wrong, n_points, n_fired = [], 0, 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, s in scenarios:
            points = s.points[:: max(1, len(s.points) // sample)] if sample else s.points
            found = list(pool.map(s.wrong, points))
            failed = [problem for _, problem in found if problem]
            fired = sum(reached for reached, _ in found)
            print(f"{name}: {len(points)} of {len(s.points)} faults, {fired} reached, {len(failed)} wrong", flush=True)
            wrong += failed
            n_points += len(points)
            n_fired += fired
    for problem in wrong[:40]:
        print(problem)
    print(f"{n_points} faults, {n_fired} reached, {len(wrong)} wrong")
    return 1 if wrong or n_fired < n_points // 2 else 0
