"""Pictures of what kernels do and where data lies, as recorded on the emulator or a GPU. Each returns a figure."""
import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

from results import result

COLORS = ["#d1495b", "#e08e2b", "#3d8bd4", "#2a9d68", "#8d6cc9"]  # white is readable on them
GROUP_COLORS = ["#b23a48", "#c4702a", "#9a8322", "#4f8a3c", "#2a8f86", "#3577b8", "#6a5bb5", "#a34d96"]  # of banks


def recorded():
    """What build/cpu/bin/record_pictures has recorded on the emulator."""
    return result("pictures.json")


def cells(axes, rows, columns, color, label, size, row_names=None, column_names=None):
    """A matrix as boxes: color(row, column), label(row, column); names beside it and above it."""
    for i in range(rows):
        for j in range(columns):
            axes.add_patch(Rectangle((j, i), 1, 1, facecolor=color(i, j), linewidth=0.8))
            axes.text(j + 0.5, i + 0.53, label(i, j), ha="center", va="center", color="white", fontsize=size)
        if row_names:
            axes.text(-0.25, i + 0.53, row_names[i], ha="right", va="center", fontsize=8)
    for j in range(columns if column_names else 0):
        axes.text(j + 0.5, -0.35, column_names[j], ha="center", va="center", fontsize=8)
    axes.set_xlim(0, columns)
    axes.set_ylim(rows, 0)
    axes.set_aspect("equal")
    axes.axis("off")


def fragments():
    """Which lane and register holds which elements of mma.m16n8k16."""
    data = recorded()["fragments"]
    figure, axes = plt.subplots(2, 2, figsize=(8.4, 9.6), width_ratios=[16, 8], gridspec_kw={"wspace": 0.2, "hspace": 0.2})
    axes[0][0].axis("off")
    axes[0][0].text(0, 0.1, "A box: the elements of a register, or of c[0] and c[1],\nc[2] and c[3]. In it: the lane that has "
                    "them.\n\nDark: lane 0. The left or upper one of two\nelements is the low half of the register.\n\n"
                    "C (16 x 8) += A (16 x 16) B (16 x 8)", transform=axes[0][0].transAxes, fontsize=11, linespacing=1.5)
    for name, columns, place in (("A", 16, axes[1][0]), ("B", 8, axes[0][1]), ("C", 8, axes[1][1])):
        where = {}  # register, or pair of registers of C -> rows and columns
        for lane, registers in enumerate(data[name]):
            boxes = registers if name != "C" else [registers[:2], registers[2:]]
            for r, box in enumerate(boxes):
                (top, left), (bottom, right) = (divmod(element, columns) for element in box)
                color = "#303030" if lane == 0 else COLORS[1:][r]
                place.add_patch(Rectangle((left, top), right - left + 1, bottom - top + 1, facecolor=color,
                                          linewidth=0.8))
                place.text((left + right + 1) / 2, (top + bottom) / 2 + 0.53, str(lane), ha="center", va="center",
                           color="white", fontsize=8)
                where.setdefault(r, []).append((left, right, top, bottom))
        for r, boxes in where.items():
            left, right, top, bottom = (f(z) for f, z in zip((min, max, min, max), zip(*boxes)))
            label = f"{name.lower()}[{r}]" if name != "C" else f"c[{2 * r}], c[{2 * r + 1}]"
            style = {"color": COLORS[1:][r], "fontsize": 11, "fontweight": "bold", "ha": "center", "va": "center"}
            if name == "A":
                place.text((left + right + 1) / 2, -1.4 if top == 0 else 16.8, label, **style)
            else:
                place.text(8.7, (top + bottom + 1) / 2, label, rotation=-90, **style)
        for j in range(columns):
            place.text(j + 0.5, -0.45, str(j), ha="center", va="center", fontsize=7)
        for i in range(16):
            place.text(-0.25, i + 0.53, str(i), ha="right", va="center", fontsize=7)
        place.set_xlim(0, columns)
        place.set_ylim(16, 0)
        place.set_aspect("equal")
        place.axis("off")
        place.set_title(f"{name} (16 x {columns})", pad=28 if name == "A" else 16)
    return figure


def swizzle():
    """In which group of banks the chunks of 8 rows lie."""
    maps = recorded()["banks"]
    figure, axes = plt.subplots(1, len(maps), figsize=(11, 2.9), gridspec_kw={"wspace": 0.16})
    for place, entry in zip(axes, maps):
        group = entry["group"]
        cells(place, 8, 8, lambda i, j: GROUP_COLORS[group[i][j]], lambda i, j: str(group[i][j]), 8,
              range(8) if place is axes[0] else None, range(8))
        # Eight rows of a chunk column, as ldmatrix reads them: as many wavefronts as rows in the same group.
        worst = max(column.count(g) for column in map(list, zip(*group)) for g in range(8))
        place.set_title(entry["layout"], pad=16, fontsize=10)
        place.text(4, 8.6, f"a column takes {worst} wavefront{'s' if worst > 1 else ''}", ha="center", fontsize=8)
    axes[0].text(-1.3, 4, "row", rotation=90, va="center", ha="center", fontsize=8)
    axes[2].text(4, 9.8, "columns: chunks of 16 bytes of a row of 64 elements. Number and colour: which 4 of the 32 banks "
                 "the chunk lies in", ha="center", fontsize=9)
    return figure


def spread(events):
    """(x, width, event): one after the other; what is computed is drawn wider."""
    x = 0
    for event in events:
        width = 1 if "ask" in event or "wait" in event else 2
        yield x, width, event
        x += width


def timeline(axes, run):
    """Slots of the rings of K and V, and below them what the warps compute, event by event."""
    stages, events = run["stages"], run["events"]
    rows = [f"{m} slot {s}" for m in "KV" for s in range(stages)] + ["waits", "computes"]
    phases = {"S": COLORS[2], "softmax": COLORS[1], "PV": COLORS[3]}
    names = {"S": "S", "softmax": "softmax", "PV": "P V"}
    slot, asked, arrived, done = {}, {}, {}, {}
    for x, width, event in spread(events):
        if "ask" in event and "slot" in event:
            slot[event["ask"]], asked[event["ask"]] = event["slot"], x
        for tile in event.get("wait", []):
            arrived[tile] = x + width
        for phase, tile in (("S", "K"), ("PV", "V")):
            if phase in event:
                done[f"{tile}{event[phase]}"] = x + width
        for phase, color in phases.items():
            if phase in event:
                axes.barh(len(rows) - 1, width, left=x, height=0.8, color=color)
                axes.text(x + width / 2, len(rows) - 1, f"{names[phase]}\n{event[phase]}", ha="center", va="center",
                          color="white", fontsize=6, linespacing=0.9)
        if "wait" in event:
            axes.text(x + width / 2, len(rows) - 2, "\n".join(tile for tile in sorted(event["wait"])), ha="center",
                      va="center", fontsize=7, linespacing=0.9)
    for tile, x in asked.items():
        row = rows.index(f"{tile[0]} slot {slot[tile]}")
        color = COLORS[4] if tile[0] == "K" else COLORS[0]
        axes.barh(row, arrived[tile] - x, left=x, height=0.7, color="none", edgecolor=color, hatch="////")
        axes.barh(row, done[tile] - arrived[tile], left=arrived[tile], height=0.7, color=color, edgecolor=color)
        axes.text(arrived[tile] + (done[tile] - arrived[tile]) / 2, row, tile, ha="center", va="center",
                  color="white", fontsize=8)
    axes.set_yticks(range(len(rows)), rows, fontsize=8)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, max(x + width for r in recorded()["pipeline"] for x, width, _ in spread(r["events"])))
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(length=0)
    axes.set_title(f"{stages} stage{'s' if stages > 1 else ''}", loc="left", fontsize=10)


def pipeline():
    """The order in which rung 07 asks for tiles, waits for them and computes with them."""
    runs = recorded()["pipeline"]
    figure, axes = plt.subplots(len(runs), 1, figsize=(10, 4.6), gridspec_kw={"hspace": 0.35, "height_ratios": [4, 6]})
    for place, run in zip(axes, runs):
        timeline(place, run)
    axes[-1].text(0, -0.1, "Hatched: asked for, not yet waited for: this is the time that a copy has. Full: there, until it was "
                  "read for the last time.\nFrom left to right: the order of events of one thread on the emulator, not time. "
                  "Q_i, asked for before K0, is not drawn.",
                  transform=axes[-1].transAxes, fontsize=8, va="top", linespacing=1.4)
    return figure


def roles(axes, run):
    """Slots of the rings, when the producer asks, and what the consumers do. `at` is an order, or nanoseconds."""
    events, stages = run["events"], run["stages"]
    consumers = sorted({e["role"] for e in events if e["role"] != "producer"})
    rows = [f"{m} slot {s}" for m in "KV" for s in range(stages)] + ["producer"] + consumers
    phases = {"S": (COLORS[2], "S"), "softmax": (COLORS[1], "softmax"), "PV": (COLORS[3], "P V")}
    slot, asked, read_first, read_last, begun = {}, {}, {}, {}, {}
    for event in events:
        at, role = event["at"], event["role"]
        if "slot" in event:
            slot[event["ask"]], asked[event["ask"]] = event["slot"], at
            color = COLORS[4] if event["ask"][0] == "K" else COLORS[0]
            axes.plot([at], [rows.index("producer")], "|", color=color, markersize=11, markeredgewidth=1.8)
            axes.text(at, rows.index("producer") - 0.45, event["ask"], ha="center", va="bottom", color=color, fontsize=6)
        tile = {"S": "K", "PV": "V"}.get(event.get("begin") or event.get("end"))
        if "begin" in event:
            begun[role] = at
            if tile:
                read_first.setdefault(f"{tile}{event['step']}", at)
        if "end" in event:
            color, name = phases[event["end"]]
            axes.barh(rows.index(role), at - begun[role], left=begun[role], height=0.8, color=color)
            label = name if event["end"] != "softmax" else "soft-\nmax"
            axes.text((begun[role] + at) / 2, rows.index(role), f"{label}\n{event['step']}", ha="center", va="center",
                      color="white", fontsize=5.5, linespacing=0.9)
            if tile:
                read_last[f"{tile}{event['step']}"] = at
    for tile, at in asked.items():
        row, color = rows.index(f"{tile[0]} slot {slot[tile]}"), COLORS[4] if tile[0] == "K" else COLORS[0]
        axes.barh(row, read_first[tile] - at, left=at, height=0.7, color="none", edgecolor=color, hatch="////")
        first, last = read_first[tile], read_last[tile]
        axes.barh(row, last - first, left=first, height=0.7, color=color, edgecolor=color)
        axes.text((first + last) / 2, row, tile, ha="center", va="center", color="white", fontsize=8)
    axes.set_yticks(range(len(rows)), rows, fontsize=8)
    axes.set_ylim(len(rows) - 0.5, -0.7)
    axes.set_xlim(min(asked.values()), max(e["at"] for e in events))
    axes.tick_params(length=0)
    if run["source"] == "emulator":
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
        return "the order of events on the emulator, not time"
    axes.set_xlabel(run["unit"])
    return f"time on a {run['source']}, in {run['unit']}"


def specialization():
    """What the producer and the consumers of rung 10 do; one strip for each source that has been recorded."""
    runs = recorded()["specialization"]
    figure, axes = plt.subplots(len(runs), 1, figsize=(11, 3.9 * len(runs)), squeeze=False, gridspec_kw={"hspace": 0.3})
    scales = [roles(place, run) for place, run in zip(axes[:, 0], runs)]
    axes[-1, 0].text(0, -0.06 if len(runs) == 1 else -0.2,
                     "Hatched: asked for, and not read by anybody yet. Full: from the first consumer's product to the end of "
                     f"the last one's.\nFrom left to right: {'; below: '.join(scales)}. Q_i, asked for first, is not drawn.",
                     transform=axes[-1, 0].transAxes, fontsize=8, va="top", linespacing=1.4)
    return figure


def gpu_timeline(rung, first_step, steps):
    """Who did what when, on a GPU: the producer's loads, and the products and the rest of each consumer."""
    run = result(f"timeline-{rung}.json")
    roles, shown = {}, {"S": [], "softmax": [], "PV": [], "load": []}
    for warp, clock, what, *_ in run["events"]:
        roles.setdefault(warp // 4, []).append((clock, what))
    for role, events in roles.items():
        if role == 0:
            shown["load"] += [(role, clock, clock + 60) for clock, what in events if what == "load"]
            continue
        products, begin = [], None
        for clock, what in events:
            if what == "product":
                begin = clock
            elif what == "product done":
                products.append((begin, clock))
        for i, (begin, end) in enumerate(products):
            shown["S" if i % 2 == 0 else "PV"].append((role, begin, end))
            if i % 2 == 0 and i + 1 < len(products):
                shown["softmax"].append((role, end, products[i + 1][0]))
    starts = sorted(begin for role, begin, _ in shown["S"] if role == 1)
    left, right = starts[first_step], starts[first_step + steps]
    figure, axes = plt.subplots(figsize=(10, 2.6))
    for what, color in {"S": COLORS[2], "softmax": COLORS[1], "PV": COLORS[3], "load": COLORS[0]}.items():
        for role, begin, end in shown[what]:
            begin, end = max(begin, left), min(end, right)
            if begin >= end:
                continue
            axes.barh(role, end - begin, left=begin - left, height=0.8 if what != "load" else 0.6, color=color, linewidth=0.3)
            if end - begin > (right - left) / 30:
                axes.text((begin + end) / 2 - left, role, what.replace("PV", "P V"), ha="center", va="center",
                          color="white", fontsize=7)
    names = ["producer"] + [f"consumer {role - 1}" for role in sorted(roles) if role > 0]
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(0, right - left)
    axes.set_xlabel("clocks of the multiprocessor", fontsize=8)
    axes.tick_params(labelsize=8)
    return run, figure


def specialization_gpu():
    """Rung 10, steps in the middle of the first block."""
    run, figure = gpu_timeline("10", 8, 4)
    figure.text(0.02, -0.12, "Block 0 in the middle of its work, d 128, N 4096: products from their start to the end of the "
                "wait for them, and the softmax\nbetween them; the producer's loads as ticks. "
                f"{run['gpu']}, commit {run['commit']}, {run['date']}.", fontsize=8, va="top", linespacing=1.4)
    return figure
