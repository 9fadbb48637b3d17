"""What nvidia-smi says of the card while kernels run: clocks, power, and what slows it."""
import statistics
import subprocess
import threading
import time

from kernels import torch

CARD_FIELDS = ["clocks.sm", "clocks.max.sm", "clocks.mem", "power.draw", "power.limit", "temperature.gpu",
               "clocks_event_reasons.active", "driver_version"]
SLOWED_BY = {0x2: "application clocks", 0x4: "power cap", 0x8: "hardware slowdown", 0x10: "sync boost",
             0x20: "temperature (software)", 0x40: "temperature (hardware)", 0x80: "power brake",
             0x100: "display clocks"}


def start_card_query():
    """nvidia-smi is slow to start: it answers while the card works."""
    command = ["nvidia-smi", f"--query-gpu={','.join(CARD_FIELDS)}", "--format=csv,noheader",
               f"--id=GPU-{torch.cuda.get_device_properties(0).uuid}"]
    try:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except OSError:
        return None


def card_state(answer):
    """{field: text} of one line of nvidia-smi, and why the clock is not at its maximum; {} if it does not answer."""
    values = [value.strip() for value in answer.splitlines()[0].split(",")] if answer.strip() else []
    if len(values) != len(CARD_FIELDS):
        return {}
    state = dict(zip(CARD_FIELDS, values))
    try:
        bits = int(state["clocks_event_reasons.active"], 16)
    except ValueError:
        bits = 0
    return state | {"slowed_by": [name for bit, name in SLOWED_BY.items() if bits & bit]}


def first_number(text):
    """700.0 of "700.00 W"; None if it does not begin with a number."""
    try:
        return float(text.split()[0])
    except (ValueError, IndexError):
        return None


def clocks_of(states):
    """For the result file: the range of what was seen under load."""
    states = [state for state in states if state]
    if not states:
        return {}

    def seen(field):
        known = {state[field]: value for state in states if (value := first_number(state[field])) is not None}
        values = sorted(known, key=known.get) or ["unknown"]  # some cards say [N/A] of their power
        return values[0] if len(values) == 1 else f"{values[0]} to {values[-1]}"
    return {"sm": seen("clocks.sm"), "sm_max": seen("clocks.max.sm"), "memory": seen("clocks.mem"),
            "power": seen("power.draw"), "power_limit": seen("power.limit"),
            "temperature": (t := seen("temperature.gpu")) + (" C" if t != "unknown" else ""),
            "slowed_by": sorted({name for state in states for name in state["slowed_by"]})}


class CardSampler:
    """The SM clock and the power of the card every few milliseconds, by nvidia-smi, while it is open."""

    def __enter__(self):
        self.samples, self.process = [], None  # (time.monotonic(), MHz, W)
        command = ["nvidia-smi", "--query-gpu=clocks.sm,power.draw.instant", "--format=csv,noheader,nounits",
                   "--loop-ms=20", f"--id=GPU-{torch.cuda.get_device_properties(0).uuid}"]
        try:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        except OSError:
            return self
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()
        give_up = time.monotonic() + 10
        while not self.samples and time.monotonic() < give_up and self.process.poll() is None:
            time.sleep(0.01)
        return self

    def read(self):
        for line in self.process.stdout:
            if sample := card_sample(line):
                self.samples.append((time.monotonic(), *sample))

    def __exit__(self, *_):
        if self.process:
            self.process.terminate()
            self.process.wait()
            self.thread.join(timeout=1)
            self.process.stdout.close()


def card_sample(line):
    """(MHz, W) of "1410, 698.12"; None if it says anything else."""
    try:
        clock, power = map(float, line.split(","))
    except ValueError:
        return None
    return clock, power


def samples_between(samples, start, end):
    """What the card was like: the median clock and power of the second half of the time, and of how many samples."""
    seen = [sample for sample in samples if (start + end) / 2 <= sample[0] <= end]
    median = lambda i: statistics.median(sample[i] for sample in seen) if seen else None
    return {"sm_mhz": median(1), "power_w": median(2), "card_samples": len(seen)}
