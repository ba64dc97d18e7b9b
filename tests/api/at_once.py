"""Actions at the same time."""

import threading

from epsilond import ApiError


def at_once(count, action):
    """The outcomes of the same action from many threads; an ApiError is an outcome too."""
    outcomes, barrier = [], threading.Barrier(count)

    def attempt():
        barrier.wait()
        try:
            outcomes.append(action())
        except ApiError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=attempt) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes
