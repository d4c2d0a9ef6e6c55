"""What a module does while it is imported may change it, but may not depend on clock or chance."""

from tests.unit.handlers.lint.conftest import codes

REGISTRY = """
import time
REGISTRY = {}
def register(name):
    def mark(function):
        function.name = name
        REGISTRY[name] = function
        def wrapper(*args):
            return function(*args)
        wrapper.__name__ = name
        return wrapper
    return mark
@register("a")
def one(text):
    return time.time()
def filled(values):
    REGISTRY.update(values)
    return REGISTRY
TABLE = filled({"a": 1})
"""


def test_decorators_may_register_and_mark_functions(lint):
    report = lint("one(message.text)", before="from registry import one", registry=REGISTRY)

    assert codes(report) == ["CM101"]


def test_values_of_a_module_may_be_built_by_functions_that_change_it(lint):
    assert codes(lint("print(TABLE)", before="from registry import TABLE", registry=REGISTRY)) == []


def test_the_same_functions_may_not_do_so_later(lint):
    body = "print(TABLE)\nfilled({})"

    assert codes(lint(body, before="from registry import TABLE, filled", registry=REGISTRY)) == ["CM801"]
    assert codes(lint("register('b')(print)", before="from registry import register", registry=REGISTRY)) == [
        "CM801"
    ]


def test_what_is_drawn_once_for_each_process_is_found_where_it_is_drawn(lint):
    (finding,) = lint("print(START)", before="import time\nSTART = time.time()\n").findings

    assert (finding.code, finding.chain) == ("CM101", ("Listener.told", "START"))


def test_functions_made_by_the_handler_may_be_given_attributes(lint):
    assert codes(lint("def inner(): ...\ninner.calls = 1")) == []
    assert codes(lint("outer.calls = 1", before="def outer(): ...\n")) == ["CM801"]
