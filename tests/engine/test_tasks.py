"""Work in threads: in order, one compiler a program, in the caller's settings; the first error ends all."""

import threading

import jax
import jax.numpy as jnp
import pytest

from fedjax_fair.engine.tasks import Task, in_threads


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_results_come_in_the_order_of_the_tasks(threads):
    tasks = [Task(i % 2, lambda _, i=i: i) for i in range(7)]
    assert in_threads(tasks, threads) == list(range(7))


def test_the_first_of_a_program_is_done_before_its_others_begin():
    done: list[int] = []
    begun: list[tuple[int, list[int]]] = []
    lock = threading.Lock()

    def work(i):
        with lock:
            begun.append((i, list(done)))
        with lock:
            done.append(i)

    in_threads([Task(i % 2, lambda _, i=i: work(i)) for i in range(8)], 4)
    assert all(i < 2 or i % 2 in before for i, before in begun)


@pytest.mark.parametrize("told", [True, False])
def test_others_of_a_program_begin_once_it_is_compiled_while_its_first_task_goes_on(told):
    another, seen = threading.Event(), []

    def first(compiled):
        if told:
            compiled()
        seen.append(another.wait(5 if told else 0.2))

    in_threads([Task(0, first), Task(0, lambda _: another.set())], 2)
    assert seen == [told]


def test_a_program_is_traced_once_ahead_of_its_first_task_and_one_at_a_time():
    seen: list[str] = []
    tracing = threading.Lock()

    def trace(program):
        assert tracing.acquire(blocking=False)
        threading.Event().wait(0.05)
        seen.append(f"trace {program}")
        tracing.release()

    tasks = [
        Task(i % 3, lambda _, i=i: seen.append(f"work {i % 3}"), trace=lambda i=i: trace(i % 3)) for i in range(9)
    ]
    in_threads(tasks, 3)
    for program in range(3):
        assert seen.count(f"trace {program}") == 1
        assert seen.index(f"trace {program}") < seen.index(f"work {program}")


def test_while_a_program_is_traced_tasks_of_a_compiled_one_are_done():
    done, traced = threading.Event(), []
    tasks = [
        Task("compiled soon", lambda _: None),
        Task("traced long", lambda _: None, trace=lambda: traced.append(done.wait(5))),
        Task("not begun", lambda _: None, trace=lambda: None),
        Task("compiled soon", lambda _: done.set()),
    ]
    in_threads(tasks, 2)
    assert traced == [True]


def test_while_a_program_is_traced_a_task_that_needs_no_trace_begins():
    done, traced = threading.Event(), []
    tasks = [
        Task("long", lambda _: None, trace=lambda: traced.append(done.wait(5))),
        Task("kept", lambda _: done.set()),
    ]
    in_threads(tasks, 2)
    assert traced == [True]


def test_after_an_error_in_a_trace_no_other_program_is_traced_or_begun():
    begun: list[int] = []

    def trace(i):
        threading.Event().wait(0.1)
        begun.append(i)
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        in_threads([Task(i, lambda _, i=i: begun.append(i), trace=lambda i=i: trace(i)) for i in range(6)], 4)
    assert len(begun) == 1


def test_after_an_error_a_task_whose_program_was_being_traced_does_not_begin():
    begun: list[str] = []

    def fail(_):
        threading.Event().wait(0.1)
        raise ValueError("wrong")

    traced = Task("traced", lambda _: begun.append("traced"), trace=lambda: threading.Event().wait(0.5))
    with pytest.raises(ValueError, match="wrong"):
        in_threads([Task("fails", fail), traced], 2)
    assert begun == []


def test_threads_compute_in_the_callers_float_type_and_precision_and_by_its_random_numbers():
    def settings(_):
        partitionable = jax.config.jax_threefry_partitionable
        return jnp.zeros(()).dtype, jax.config.jax_default_matmul_precision, partitionable

    with jax.enable_x64(True), jax.default_matmul_precision("highest"), jax.threefry_partitionable(False):
        found = in_threads([Task(i, settings) for i in range(4)], 2)
    assert found == [(jnp.float64, "highest", False)] * 4


def test_the_first_error_is_raised_and_what_has_not_begun_is_left_out():
    begun = []

    def work(i):
        begun.append(i)
        if i == 0:
            raise KeyboardInterrupt("enough")
        threading.Event().wait(0.05)

    with pytest.raises(KeyboardInterrupt, match="enough"):
        in_threads([Task(i, lambda _, i=i: work(i)) for i in range(50)], 2)
    assert len(begun) < 50


def test_what_has_begun_is_told_that_it_may_stop():
    begun, halted, seen = threading.Event(), threading.Event(), []

    def fail(_):
        assert begun.wait(10)
        raise ValueError("wrong")

    def go_on(_):
        begun.set()
        seen.append(halted.wait(10))

    with pytest.raises(ValueError, match="wrong"):
        in_threads([Task("fails", fail), Task("goes on", go_on)], 2, halted)
    assert seen == [True]
