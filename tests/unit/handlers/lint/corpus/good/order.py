"""Sets whose order is not used, or is made."""

import math
from collections import Counter
from decimal import Decimal

from handlers import Context, Handler, handles
from shop import Basket, Ordered, Told


class Order(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        for name in sorted(state.names):
            context.publish(Told(shop=message.shop, text=name))
        tuple(sorted(state.names | message.tags))
        state.names | {message.name}
        kept = frozenset(name for name in state.names if name != message.name)
        kept = {name.lower() for name in state.names}
        frozenset(kept)
        if message.name in state.names or message.name in {"a", "b"}:
            pass
        len(state.names)
        if not state.names:
            pass
        min(state.names) + max(state.names)
        if any(name.startswith("a") for name in state.names) and all(map(len, state.names)):
            pass
        sum(1 for name in state.names if name)
        sum(each.score for each in state.players)
        str(sum(state.prices, Decimal(0)))
        math.fsum(state.weights)
        best = sorted(state.players, key=lambda each: (-each.score, each.name))
        tuple(each.name for each in best)
        names = list(state.names)
        names.sort()
        counts: dict[str, int] = {}
        for line in state.lines:
            counts[line] = counts.get(line, 0) + 1
        lines = [f"{name} {count}" for name, count in counts.items()]
        most = Counter(state.lines).most_common(1)
        most[0][0] if most else ""
        tuple(dict.fromkeys(state.lines))
        seen: set[str] = set()
        lines = []
        for line in state.lines:
            if line not in seen:
                seen.add(line)
                lines.append(line)
        if message.tags <= state.names and state.names != frozenset():
            pass
        state.names.union(message.tags).difference({""})
        for place, name in enumerate(sorted(set(state.lines))):
            context.publish(Told(shop=message.shop, text=f"{place} {name}"))
        missing = set()
        for tag in message.tags:
            if tag not in state.names:
                missing.add(tag)
        state.names | missing
        if len(state.names) != 1:
            pass
        (name,) = state.names
        return state
