"""Every class is abstract or final: one that can be made has no subclass, and a method
that is there is not overridden."""

import importlib
import inspect
import pkgutil

import sdifp

# Methods of Python that are inherited code as well.
_DUNDERS = ("__call__", "__post_init__")


def all_classes():
    """All classes of the package, but errors."""
    for module in pkgutil.walk_packages(sdifp.__path__, "sdifp."):
        if module.name.endswith("__main__"):
            continue
        try:
            found = vars(importlib.import_module(module.name))
        except ImportError:
            # PyTorch is not installed.
            assert module.name.startswith("sdifp.torch")
            continue
        for value in found.values():
            own = inspect.isclass(value) and value.__module__ == module.name
            if own and not issubclass(value, BaseException):
                yield value


def faults(one):
    """What is wrong with a class and those of the package that it inherits from."""
    for base in one.__mro__[1:]:
        if not base.__module__.startswith(one.__module__.partition(".")[0]):
            continue
        if not inspect.isabstract(base):
            yield f"{one} subclasses {base}, which is not abstract"
        methods = {
            name
            for name, value in vars(base).items()
            if hasattr(value, "__get__") and (name[:2] != "__" or name in _DUNDERS)
        }
        again = methods & set(vars(one)) - getattr(base, "__abstractmethods__", set())
        if again:
            yield f"{one} overrides {sorted(again)} of {base}"


def test_classes_are_abstract_or_final():
    classes = set(all_classes())
    assert sdifp.training.SDIFP in classes
    assert len(classes) > 80
    assert [fault for one in classes for fault in faults(one)] == []


def test_the_walk_sees_what_is_wrong():
    class Whole:
        def method(self):
            return 1

        @property
        def number(self):
            return 1

    class Again(Whole):
        number = 2

        def method(self):
            return 2

    subclasses, overrides = faults(Again)
    assert subclasses.endswith("is not abstract")
    assert "overrides ['method', 'number']" in overrides
    # An abstract method may be filled in, once.
    assert list(faults(sdifp.training.SDIFP)) == []
