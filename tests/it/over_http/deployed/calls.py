"""What Modal's own errors mean to the front, raised as its package raises them."""

import modal
import modal_app as app

RAISED = [
    # Pending, and its API away: nobody says that it is over.
    (TimeoutError(), None),
    (modal.exception.ConnectionError("no route"), None),
    (modal.exception.ServiceError("unavailable"), None),
    (modal.exception.InternalError("try again"), None),
    (modal.exception.ResourceExhaustedError("too many"), None),
    (modal.exception.FunctionTimeoutError("3600 s"), "the container reached its time limit of 3600 s"),
    (modal.exception.OutputExpiredError(), "the platform does not know the container any more"),
    (modal.exception.NotFoundError("no call"), "the platform does not know the container any more"),
    (modal.exception.InputCancellation(), "the container was cancelled"),
    (modal.exception.RemoteError("killed"), "the container failed: killed"),
    (modal.exception.InternalFailure(), "the container failed: InternalFailure"),
    (RuntimeError("the Volume is away"), "the container failed: the Volume is away"),
    (None, "the container ended"),
]
CANCELLED = []


class Call:
    def __init__(self, error):
        self.error = error

    def get(self, timeout):
        assert timeout == 0
        if self.error is not None:
            raise self.error

    def cancel(self, terminate_containers):
        CANCELLED.append(terminate_containers)


for error, words in RAISED:
    modal.FunctionCall.from_id = lambda call, error=error: Call(error)
    assert app.FunctionCalls().over("fc-1") == words, (error, app.FunctionCalls().over("fc-1"))
app.FunctionCalls().cancel("fc-1")
assert CANCELLED == [True]
print("all of them")
