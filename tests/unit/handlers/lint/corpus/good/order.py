"""Sets whose order is not used, or is made."""

import math
from collections import Counter
from decimal import Decimal

from handlers import Context, Handler, handles
from shop import Basket, Ordered, Told


class SortedLoop(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        for name in sorted(state.names):
            context.publish(Told(shop=message.shop, text=name))
        return state


class SortedUnion(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"lines": tuple(sorted(state.names | message.tags))})


class GrowingSet(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"names": state.names | {message.name}})


class FilteredSet(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        kept = frozenset(name for name in state.names if name != message.name)
        return state.model_copy(update={"names": kept})


class SetComprehension(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        kept = {name.lower() for name in state.names}
        return state.model_copy(update={"names": frozenset(kept)})


class Membership(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        if message.name in state.names or message.name in {"a", "b"}:
            return state
        return state.model_copy(update={"count": len(state.names)})


class LeastAndMost(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        if not state.names:
            return state
        return state.model_copy(update={"note": min(state.names) + max(state.names)})


class AnyAndAll(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        if any(name.startswith("a") for name in state.names) and all(map(len, state.names)):
            return state
        return state.model_copy(update={"count": 0})


class CountOfMembers(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"count": sum(1 for name in state.names if name)})


class SumOfIntegers(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"count": sum(each.score for each in state.players)})


class SumOfDecimals(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(sum(state.prices, Decimal(0)))})


class ExactSumOfFloats(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"total": math.fsum(state.weights)})


class SortedByAFullKey(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        best = sorted(state.players, key=lambda each: (-each.score, each.name))
        return state.model_copy(update={"lines": tuple(each.name for each in best)})


class SortedInPlace(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        names = list(state.names)
        names.sort()
        return state.model_copy(update={"lines": tuple(names)})


class DictInOrder(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        counts: dict[str, int] = {}
        for line in state.lines:
            counts[line] = counts.get(line, 0) + 1
        lines = [f"{name} {count}" for name, count in counts.items()]
        return state.model_copy(update={"lines": tuple(lines)})


class CountedLines(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        most = Counter(state.lines).most_common(1)
        return state.model_copy(update={"note": most[0][0] if most else ""})


class WithoutDoubles(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"lines": tuple(dict.fromkeys(state.lines))})


class SetOfALoop(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        seen: set[str] = set()
        lines = []
        for line in state.lines:
            if line not in seen:
                seen.add(line)
                lines.append(line)
        return state.model_copy(update={"lines": tuple(lines)})


class SubsetsAndEquality(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        if message.tags <= state.names and state.names != frozenset():
            return state
        return state.model_copy(update={"names": state.names.union(message.tags).difference({""})})


class EnumeratedInOrder(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        for place, name in enumerate(sorted(set(state.lines))):
            context.publish(Told(shop=message.shop, text=f"{place} {name}"))
        return state


class OrderlessLoop(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        missing = set()
        for tag in message.tags:
            if tag not in state.names:
                missing.add(tag)
        return state.model_copy(update={"names": state.names | missing})


class OnlyMember(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        if len(state.names) != 1:
            return state
        (name,) = state.names
        return state.model_copy(update={"note": name})
