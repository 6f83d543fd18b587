"""What happens to running plans when the process forks or is interrupted."""

import pytest

from tests.runtime.test_workers_process import posix, run

PLANS = """
        import ctypes
        from tests.runtime.counting import kernels
        from tests.runtime.mixing import random_mix
        from wengert.runtime.executor import Table, TaskGraph

        def plan(kind, rows, dependencies):
            return Table(rows) if kind == "table" else TaskGraph(rows, dependencies)

        def plans_work():
            mix = random_mix(200, 0)
            for kind in ("table", "graph"):
                plan(kind, mix.rows, mix.dependencies).run()
                mix.check()
            return works()
"""
KINDS = pytest.mark.parametrize("kind", ["table", "graph"])


@posix
@KINDS
@pytest.mark.parametrize("grain", [1, 10])
@pytest.mark.parametrize("delay", [0.02, 0.13])
def test_an_interrupt_ends_a_plan_between_slices(kind: str, grain: int, delay: float) -> None:
    out = run(f"""{PLANS}
        work = slow(0.001)
        rows = np.array([[kernels().addresses["slow"], 10, {grain}, work.ran.ctypes.data]] * 5000, np.int64)
        long = plan({kind!r}, rows, [[k - 3] if k > 2 else [] for k in range(5000)])
        assert plans_work()
        threading.Timer({delay}, os.kill, (os.getpid(), signal.SIGINT)).start()
        start = time.perf_counter()
        try:
            long.run()
        except KeyboardInterrupt:
            print(time.perf_counter() - start, flush=True)
        ran = work.ran[0]
        assert 0 < ran < 50_000 // {grain}
        assert plans_work()
        assert work.ran[0] == ran
    """)
    assert float(out) < delay + 5


@posix
def test_parent_and_child_run_plans() -> None:
    run(f"""{PLANS}
        assert plans_work()
        for _ in range(3):
            assert child(plans_work)
            assert plans_work()
    """)


@posix
def test_a_fork_while_another_thread_runs_a_graph() -> None:
    run(f"""{PLANS}
        work = slow(0.0005)
        rows = np.array([[kernels().addresses["slow"], 10, 2, work.ran.ctypes.data]] * 30, np.int64)
        graph = TaskGraph(rows, [[k - 3] if k > 2 else [] for k in range(30)])
        forked, rounds = threading.Event(), []

        def call():
            while not forked.is_set():
                graph.run()
                rounds.append(work.ran[0])

        caller = threading.Thread(target=call)
        caller.start()
        time.sleep(0.05)
        for _ in range(5):
            assert child(plans_work)
        forked.set()
        caller.join()
        assert rounds and rounds == [150 * (k + 1) for k in range(len(rounds))]
    """)


@posix
@KINDS
def test_a_child_that_returns_into_the_plan_it_was_forked_in_gets_an_error(kind: str) -> None:
    out = run(f"""{PLANS}
        meeting = threading.Barrier(2, timeout=20)
        leader, parent = threading.get_ident(), os.getpid()
        children, forked = [], threading.Event()

        @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        def kernel(arguments, begin, end):
            meeting.wait()
            if threading.get_ident() == leader:
                children.append(os.fork())
                signal.alarm(30 if children[-1] == 0 else 0)
                forked.set()
            assert forked.wait(20)

        rows = np.array([[ctypes.cast(kernel, ctypes.c_void_p).value, 2, 1, 0]], np.int64)
        try:
            plan({kind!r}, rows, [[]]).run()
        except RuntimeError as error:
            assert os.getpid() != parent and plans_work()
            print(error, flush=True)
            os._exit(7)
        assert os.getpid() == parent
        assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 7
        assert plans_work()
    """)
    assert "this process was forked inside" in out


@posix
@KINDS
def test_a_signal_handler_may_run_plans(kind: str) -> None:
    run(f"""{PLANS}
        handled = []
        signal.signal(signal.SIGALRM, lambda *_: handled.append(plans_work()))
        work = slow(0.001)
        rows = np.array([[kernels().addresses["slow"], 10, 1, work.ran.ctypes.data]] * 60, np.int64)
        made = plan({kind!r}, rows, [[k - 3] if k > 2 else [] for k in range(60)])
        assert plans_work()
        signal.setitimer(signal.ITIMER_REAL, 0.03)
        made.run()
        assert (handled, work.ran[0]) == ([True], 600)
    """)
