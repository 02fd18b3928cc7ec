"""The loop event by event (simpy). It knows no formula of the steady state: it is their oracle.

Contents: Sample, Batch, Moment, Trace, simulate.

Processes: one per trajectory that may be under way, one trainer, one publisher. Trajectories are taken by training in
the order in which they ended. The same facts and seed give the same events.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from mapsearch.looping.facts import LoopFacts

_BLOCK = 4096
_ROUNDING = 1e-9


class Sample(NamedTuple):
    """A trajectory that has ended."""

    version: int
    started_s: float
    queued_s: float
    tokens: float
    mixed: bool
    """Weights were switched under it."""


class Batch(NamedTuple):
    """What one training step took."""

    taken_s: float
    waited_s: float
    """Training stood still for so long because the queue held less than a batch."""
    tokens: float
    samples: int
    lag_mean: float
    lag_most: int
    age_mean_s: float
    age_most_s: float
    queued_mean_s: float
    """Of its tokens."""
    lags: tuple[tuple[int, int], ...]
    """Versions behind, and how many samples were."""
    weight: float
    """Mean weight of its tokens."""
    over_tokens: float
    mixed_samples: int


class Moment(NamedTuple):
    """The state between two events."""

    time_s: float
    queue_tokens: float
    trained: int
    rolled: int
    unpublished: int
    """Versions that wait for the publisher."""


@dataclass
class Trace:
    """A run: its batches, the state at every take and update, and totals up to each batch."""

    batches: list[Batch] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    totals: list[tuple[float, ...]] = field(default_factory=list)
    """At each take: seconds, token-seconds in the queue, tokens kept, tokens dropped, slot-seconds of work."""
    stalled: bool = False
    """Training waited longer than `patience_s` for a batch, and the run was ended."""


def simulate(facts: LoopFacts, *, steps: int, seed: int = 0, patience_s: float | None = None) -> Trace:
    """The loop from its start with an empty queue and one version, for so many training steps.

    `patience_s`: how long training waits for a batch before it counts as starved for good; by default thirty times
    what a batch and a publication take.
    """
    import simpy

    world = _World(simpy.Environment(), facts, np.random.default_rng(seed), steps)
    supply_s = facts.batch_tokens / facts.kept_tokens_per_s + facts.seconds(facts.lengths.longest)
    patience = patience_s or 30.0 * (supply_s + facts.train_s + facts.publish_s)
    world.env.process(world.watch(patience))
    world.env.run(until=world.done)
    return world.trace


class _Replica:
    """A part of the pool: its places, its version, and its clock, which stands while it pauses."""

    def __init__(self, env: Any, places: int) -> None:
        self.env, self.places = env, places
        self.rolled = self.running = self.blocked = self.switches = 0
        self.draining = False
        self.parked: deque[Any] = deque()
        self.empty = env.event()
        self.paused_s, self.pause_from, self.pause_end = 0.0, math.inf, env.event()
        self.restarts, self.restarted_s, self.restarted_clock = 0, 0.0, 0.0
        self.older = 0
        """Trajectories under way that began before the last switch."""

    def clock(self) -> float:
        """Seconds in which the replica was not paused."""
        return float(min(self.env.now, self.pause_from) - self.paused_s)

    def ended(self) -> None:
        """Tell when nothing that a switch waits for generates any more; one that waits for room has ended."""
        if (self.running <= self.blocked or not self.older) and not self.empty.triggered:
            self.empty.succeed()

    def switch(self, version: int, facts: LoopFacts) -> Generator[Any, Any, None]:
        """To a version that has arrived."""
        env = self.env
        if facts.switching == "drain":
            self.draining = True
            while self.running > self.blocked:
                self.empty = env.event()
                yield self.empty
        while facts.switching == "side-by-side" and self.older:
            self.empty = env.event()
            yield self.empty
        if facts.pause_s:
            self.pause_from, self.pause_end = env.now, env.event()
            yield env.timeout(facts.pause_s)
            self.paused_s += env.now - self.pause_from
            self.pause_from = math.inf
            self.pause_end.succeed()
        self.rolled, self.draining = version, False
        self.switches, self.older = self.switches + 1, self.running - self.blocked
        if facts.switching == "restart":
            self.restarts, self.restarted_s, self.restarted_clock = self.restarts + 1, env.now, self.clock()


class _World:
    def __init__(self, env: Any, facts: LoopFacts, chance: np.random.Generator, steps: int) -> None:
        self.env, self.facts, self.chance, self.steps = env, facts, chance, steps
        self.trace = Trace()
        self.queue: deque[Sample] = deque()
        self.queued = 0.0
        self.area, self.area_s = 0.0, 0.0
        self.kept = self.dropped = self.consumed = self.coming = self.worked_s = 0.0
        self.trained = 0
        self.blocked: deque[tuple[Any, Sample, _Replica]] = deque()
        self.versions: deque[int] = deque()
        self.done, self.fed, self.news = env.event(), env.event(), env.event()
        self.draws = self._draws()
        each, more = divmod(facts.concurrency, facts.replicas)
        self.replicas = [_Replica(env, each + (place < more)) for place in range(facts.replicas)]
        for place in range(each + (more > 0)):
            for replica in self.replicas:
                if place < replica.places:
                    env.process(self.slot(replica))
        env.process(self.trainer())
        env.process(self.publisher())

    def _draws(self) -> Generator[tuple[float, float, bool], None, None]:
        """Tokens, seconds of work and fate of one trajectory after the other."""
        facts = self.facts
        width = math.sqrt(math.log1p(facts.speed_cv**2))
        while True:
            tokens = facts.lengths.drawn(self.chance, _BLOCK)
            slow = np.exp(width * self.chance.standard_normal(_BLOCK) - 0.5 * width * width)
            kept = self.chance.random(_BLOCK) < facts.kept_share
            seconds = facts.seconds(tokens) * slow
            yield from zip(tokens.tolist(), seconds.tolist(), kept.tolist(), strict=True)

    # Rollout

    @property
    def rolled(self) -> int:
        """The oldest version with which trajectories begin."""
        return min(replica.rolled for replica in self.replicas)

    def may_start(self, replica: _Replica) -> bool:
        """Whether a trajectory may begin: not during a switch, and with `wait` none that could be used too late."""
        facts = self.facts
        if replica.draining:
            return False
        if facts.policy != "wait":
            return True
        # Lengths are known here as they are in no real pool; a pool that counts trajectories paces the same on average.
        ahead = self.queued + self.coming + _ROUNDING
        if math.isfinite(facts.versions_allowed):
            allowed = (replica.rolled + facts.versions_allowed + 1) * facts.batch_tokens - self.consumed
            if ahead >= allowed:
                return False
        return ahead < facts.most_system_tokens

    def slot(self, replica: _Replica) -> Generator[Any, Any, None]:
        """One trajectory after the other, in one place of a replica."""
        env, facts = self.env, self.facts
        while True:
            while not self.may_start(replica):
                replica.parked.append(env.event())
                yield replica.parked[-1]
            tokens, seconds, kept = next(self.draws)
            switches = replica.switches
            replica.running += 1
            self.coming += kept * tokens
            started, version = yield from self.work(replica, seconds)
            self.worked_s += seconds
            replica.older -= replica.switches > switches
            if kept:
                mixed = facts.switching == "in-flight" and replica.switches > switches
                sample = Sample(version, started, env.now, tokens, mixed)
                if self.has_room(tokens):
                    self.put(sample)
                else:
                    waits = env.event()
                    self.blocked.append((waits, sample, replica))
                    replica.blocked += 1
                    replica.ended()
                    yield waits
            replica.running -= 1
            self.coming -= kept * tokens
            replica.ended()

    def work(self, replica: _Replica, seconds: float) -> Generator[Any, Any, tuple[float, int]]:
        """So many seconds of generation, pauses added; from when, and on which version, all of it was generated."""
        env, restarts = self.env, replica.restarts
        started, version = env.now, replica.rolled
        until = replica.clock() + seconds
        while (left := until - replica.clock()) > _ROUNDING * seconds:
            yield replica.pause_end if env.now >= replica.pause_from else env.timeout(left)
            if replica.restarts > restarts:
                restarts, started, version = replica.restarts, replica.restarted_s, replica.rolled
                until = replica.restarted_clock + seconds
        return started, version

    def unpark(self) -> None:
        """Let trajectories begin that may."""
        for replica in self.replicas:
            waiting, replica.parked = replica.parked, deque()
            for event in waiting:
                event.succeed()

    # Queue

    def has_room(self, tokens: float) -> bool:
        """Room up to the bound; what training waits for is always let in."""
        return self.queued + tokens <= self.facts.most_queue_tokens or self.queued < self.needed()

    def needed(self) -> float:
        """Tokens that the next step takes: batches are whole trajectories, of the right size on average."""
        return (self.trained + 1) * self.facts.batch_tokens - self.consumed + self.facts.least_queue_tokens

    def level(self, change: float) -> None:
        """Change the queue's level, and keep the area under it."""
        self.area += self.queued * (self.env.now - self.area_s)
        self.area_s = self.env.now
        self.queued += change

    def put(self, sample: Sample) -> None:
        """A sample into the queue, or away when it is over the budget already."""
        self.kept += sample.tokens
        if self.facts.policy == "drop" and self.over(sample):
            self.dropped += sample.tokens
            return
        self.level(sample.tokens)
        self.queue.append(sample._replace(queued_s=self.env.now))
        if self.queued >= self.needed() - _ROUNDING and not self.fed.triggered:
            self.fed.succeed()

    def over(self, sample: Sample) -> bool:
        return self.facts.over(self.trained - sample.version, self.env.now - sample.started_s)

    def purge(self) -> None:
        """Throw away what is over the budget."""
        if self.facts.policy != "drop" or not any(self.over(sample) for sample in self.queue):
            return
        left = [sample for sample in self.queue if not self.over(sample)]
        tokens = self.queued - sum(sample.tokens for sample in left)
        self.dropped += tokens
        self.level(-tokens)
        self.queue = deque(left)
        self.unblock()

    def unblock(self) -> None:
        """Let ended trajectories into the queue while there is room, then new ones begin."""
        while self.blocked and self.has_room(self.blocked[0][1].tokens):
            event, sample, replica = self.blocked.popleft()
            replica.blocked -= 1
            self.put(sample)
            event.succeed()
        self.unpark()

    # Training

    def trainer(self) -> Generator[Any, Any, None]:
        """Take a batch, train, hand the version to the publisher."""
        env, facts = self.env, self.facts
        while len(self.trace.batches) < self.steps:
            waiting_from = env.now
            self.purge()
            while self.queued < self.needed() - _ROUNDING:
                self.fed = env.event()
                yield self.fed
                self.purge()
            self.take(env.now - waiting_from)
            yield env.timeout(facts.train_s)
            self.trained += 1
            if self.trained % facts.every == 0:
                self.versions.append(self.trained)
            if self.versions and not self.news.triggered:
                self.news.succeed()
            self.mark()
            if facts.publish_stall_s:
                yield env.timeout(facts.publish_stall_s)
        self.done.succeed()

    def take(self, waited_s: float) -> None:
        """The oldest samples of the queue into a batch."""
        self.mark()
        wanted, taken, got = self.needed() - self.facts.least_queue_tokens - _ROUNDING, [], 0.0
        while got < wanted:
            taken.append(self.queue.popleft())
            got += taken[-1].tokens
        self.level(-got)
        self.consumed += got
        self.trace.batches.append(self.batch(taken, got, waited_s))
        self.trace.totals.append((self.env.now, self.area, self.kept, self.dropped, self.worked_s))
        self.unblock()
        self.mark()

    def batch(self, taken: list[Sample], tokens: float, waited_s: float) -> Batch:
        """What is told of a batch."""
        facts, now, count = self.facts, self.env.now, len(taken)
        lags = [self.trained - sample.version for sample in taken]
        ages = [now - sample.started_s for sample in taken]
        weight = over = 0.0
        for sample, lag, age in zip(taken, lags, ages, strict=True):
            late = facts.over(lag, age)
            over += sample.tokens * late
            beyond = max(lag - facts.versions_allowed, 1.0) if late else 0.0
            weight += sample.tokens * (facts.decay**beyond if facts.policy == "down-weight" else 1.0)
        queued = sum(sample.tokens * (now - sample.queued_s) for sample in taken)
        mixed = sum(sample.mixed for sample in taken)
        return Batch(now, waited_s, tokens, count, sum(lags) / count, max(lags), sum(ages) / count, max(ages),
                     queued / tokens, tuple(sorted(Counter(lags).items())), weight / tokens, over, mixed)  # fmt: skip

    def mark(self) -> None:
        """Keep the state."""
        self.trace.moments.append(
            Moment(self.env.now, self.queued, self.trained, self.rolled, len(self.versions))
        )  # fmt: skip

    # Publishing

    def publisher(self) -> Generator[Any, Any, None]:
        """One version after the other to all replicas, each of which switches by itself."""
        env, facts, switched = self.env, self.facts, self.env.timeout(0.0)
        while True:
            if not self.versions:
                self.news = env.event()
                yield self.news
            version = self.versions.popleft()
            if facts.publishing == "latest":
                while self.versions:
                    version = self.versions.popleft()
            yield env.timeout(facts.publish_s - facts.pause_s)
            yield switched  # the next version is on its way while replicas wait for their trajectories
            switched = env.all_of([env.process(self.switched(replica, version)) for replica in self.replicas])
            yield env.timeout(facts.pause_s)

    def switched(self, replica: _Replica, version: int) -> Generator[Any, Any, None]:
        """One replica on a new version, and what may begin with it."""
        yield from replica.switch(version, self.facts)
        self.unpark()

    def watch(self, patience_s: float) -> Generator[Any, Any, None]:
        """End a run whose training starves for good."""
        seen = -1
        while len(self.trace.batches) > seen:
            seen = len(self.trace.batches)
            yield self.env.timeout(patience_s)
        self.trace.stalled = True
        if not self.done.triggered:
            self.done.succeed()
