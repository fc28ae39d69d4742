import { isSagaboxError } from "../../errors/index.ts";
import {
  after,
  backoffMs,
  type CancelTimer,
  randomToken,
  sleep,
  systemClock,
  withDeadline,
  yieldToEventLoop,
} from "../../runtime/index.ts";
import { type Consumption, type Delivery, fromWire, type Subscription } from "../../transport/index.ts";
import { AssignedPartition, type PendingRecord, type Source } from "./assigned-partition.ts";
import { describeConnectionError } from "./connections.ts";
import { Coordinator, type Offset } from "./coordinator.ts";
import { type KafkaDriver, NoAnswerError, type OwnedPartitions } from "./driver.ts";
import { Fetcher } from "./fetcher.ts";
import { GroupMember } from "./group-member.ts";
import { prepareGroup } from "./group-start.ts";
import { codes, codeText } from "./kafka-codes.ts";
import { KafkaDelivery } from "./kafka-delivery.ts";
import type { KafkaSettings } from "./options.ts";
import { PartitionStarter } from "./partition-starter.ts";
import type { RecordCopier } from "./record-copier.ts";
import { readAttempt, toTextHeaders } from "./record-headers.ts";
import type { TopicDirectory } from "./topic-directory.ts";
import type { Topology } from "./topology.ts";
import { groupByTopic } from "./wire-forms.ts";

export interface SubscriberParts {
  readonly driver: KafkaDriver;
  readonly directory: TopicDirectory;
  readonly topology: Topology;
  readonly settings: KafkaSettings;
  readonly copies: RecordCopier;
  readonly subscription: Subscription;
  readonly receive: (delivery: Delivery) => void;
}

/** A group that the cluster is still making room for is waited for; what has no answer or no right is tried later. */
const MAX_JOIN_MS = 15_000;
const UNREACHABLE_AFTER = 3;
const MAX_CLOSE_MS = 10_000;

/** One member of a consumer group: from the partitions it is given to the handlers, and back to committed offsets. */
export class Subscriber implements Consumption {
  readonly #parts: SubscriberParts;
  readonly #sources: ReadonlyMap<string, Source>;
  readonly #partitions: Partitions;
  readonly #coordinator: Coordinator;
  readonly #member: GroupMember;
  readonly #starter: PartitionStarter;
  readonly #fetcher: Fetcher;
  readonly #committer: Committer;
  readonly #dispatcher: Dispatcher;
  #starts: readonly Offset[] = [];
  #open = 0;
  #closed: Promise<void> | undefined;

  constructor(parts: SubscriberParts) {
    this.#parts = parts;
    const { driver, directory, topology, settings, copies, subscription } = parts;
    const { service, group, prefetch } = subscription;
    const name = randomToken().slice(0, 8);
    this.#sources = buildSources(topology, copies, subscription);
    const askMs = Math.min(settings.timeoutMs, Math.max(1_000, settings.sessionTimeoutMs / 3));
    const groupName = topology.groupName(service, group);
    this.#coordinator = new Coordinator(driver, groupName, `group-${name}`, askMs);
    this.#member = new GroupMember({
      coordinator: this.#coordinator,
      topics: [...this.#sources.keys()],
      sessionTimeoutMs: settings.sessionTimeoutMs,
      handOverMs: settings.handOverMs,
      prepare: () => this.#prepare(),
      owned: () => this.#partitions.listOwned(),
      assigned: (assignment) => this.#applyAssignment(assignment),
      fenced: () => this.#partitions.abandonAll(),
    });
    const shared = { driver, directory, coordinator: this.#coordinator, member: this.#member };
    const partitions = (): Iterable<AssignedPartition> => this.#partitions;
    this.#committer = new Committer({ ...shared, partitions, intervalMs: settings.commitIntervalMs });
    this.#partitions = new Partitions({
      handOverMs: settings.handOverMs,
      commit: () => this.#committer.commitFinally(),
      changed: () => this.#member.wake(),
    });
    this.#starter = new PartitionStarter({ ...shared, partitions, started: () => this.#fetcher.wake() });
    this.#fetcher = new Fetcher({
      ...shared,
      partitions,
      lane: `fetch-${name}`,
      waitMs: settings.fetchWaitMs,
      atLeast: prefetch,
      fetched: () => this.#dispatcher.dispatchNow(),
      warn: settings.warn,
    });
    this.#dispatcher = new Dispatcher({
      prefetch,
      partitions,
      open: () => this.#open,
      hand: (partition, waiting) => this.#deliver(partition, waiting),
      hungry: () => this.#fetcher.wake(),
    });
  }

  /** Resolves when the group's beginning is written down and we belong to it, or when the broker cannot be reached. */
  async start(): Promise<void> {
    let failures = 0;
    let giveUp: () => void = () => undefined;
    const unreachable = new Promise<void>((resolve) => (giveUp = resolve));
    const joined = this.#member
      .start((error) => {
        failures += error instanceof NoAnswerError || isSagaboxError(error) ? 1 : 0;
        if (failures === UNREACHABLE_AFTER) giveUp();
      })
      .then(() => this.#starter.waitForPending());
    await withDeadline(Promise.race([joined, unreachable]), MAX_JOIN_MS, () => undefined);
  }

  async pause(): Promise<void> {
    this.#dispatcher.pause();
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  health(): { readonly ok: boolean; readonly detail?: string } {
    const trouble = this.#member.trouble ?? this.#starter.trouble ?? this.#fetcher.trouble;
    if (trouble !== undefined) return { ok: false, detail: describeConnectionError(trouble) };
    return this.#member.isMember ? { ok: true } : { ok: false, detail: "not a member of the group yet" };
  }

  async #close(): Promise<void> {
    this.#dispatcher.pause();
    for (const partition of this.#partitions) partition.leave();
    for (const partition of this.#partitions) partition.abandonDeliveries();
    const leaveGroup = async (): Promise<void> => {
      await this.#starter.stop();
      await this.#committer.commitFinally();
      await this.#member.leave();
      await this.#fetcher.stop();
    };
    await withDeadline(leaveGroup(), MAX_CLOSE_MS, () => undefined);
    // What did not end by itself ends with its connections.
    this.#committer.close();
    this.#partitions.abandonAll();
    void this.#fetcher.stop();
    this.#coordinator.close();
  }

  async #prepare(): Promise<void> {
    this.#starts = await prepareGroup(
      { ...this.#parts, coordinator: this.#coordinator },
      this.#parts.subscription,
    );
    await this.#starter.start(this.#starts);
  }

  async #applyAssignment(assignment: readonly OwnedPartitions[]): Promise<void> {
    const { directory } = this.#parts;
    const unknown = assignment.some(({ topicId }) => directory.findName(topicId) === undefined);
    if (unknown) await directory.describe([...this.#sources.keys()]);
    this.#partitions.assign(assignment, (topicId, partition) => {
      const topic = directory.findName(topicId);
      const source = topic === undefined ? undefined : this.#sources.get(topic);
      if (topic === undefined || source === undefined) return undefined;
      return new AssignedPartition(topic, topicId, partition, source);
    });
    this.#starter.wake();
  }

  #deliver(partition: AssignedPartition, waiting: PendingRecord): void {
    const { copies, subscription, receive } = this.#parts;
    const { record } = waiting;
    const { topic } = partition.source;
    const key = record.key?.toString("utf8") ?? null;
    const received = fromWire({ body: record.value, headers: toTextHeaders(record.headers), topic, key });
    const keyed = subscription.ordered && received.message.key !== null;
    const delivery: KafkaDelivery = new KafkaDelivery(
      {
        ...received,
        attempt: readAttempt(record.headers),
        orderKey: keyed ? `${topic}/${received.message.key}` : null,
      },
      {
        ended: (ended, how) => this.#finishDelivery(partition, waiting, ended, how),
        copyForRetry: (options) => copies.copyToRetry(topic, record, options, delivery.signal),
        copyForDead: (note) => copies.copyToDeadLetters(topic, record, note, delivery.signal),
      },
    );
    partition.deliveries.add(delivery);
    this.#open += 1;
    receive(delivery);
  }

  #finishDelivery(
    partition: AssignedPartition,
    waiting: PendingRecord,
    delivery: KafkaDelivery,
    how: "done" | "released" | "lost",
  ): void {
    this.#open -= 1;
    partition.deliveries.delete(delivery);
    if (how === "done") {
      partition.line.complete(waiting.record.offset);
      this.#committer.scheduleCommit();
    } else if (how === "released") partition.putBack(waiting);
    this.#partitions.noteDeliveryEnd(partition);
    this.#dispatcher.dispatchSoon();
  }
}

function buildSources(
  topology: Topology,
  copies: RecordCopier,
  { topics }: Subscription,
): ReadonlyMap<string, Source> {
  const own = topics.map(({ topic }) => [topology.topicName(topic), { topic, retries: false }] as const);
  const later = [...copies.retryTopics()].map(([name, topic]) => [name, { topic, retries: true }] as const);
  return new Map<string, Source>([...own, ...later]);
}

interface DispatcherParts {
  readonly prefetch: number;
  readonly partitions: () => Iterable<AssignedPartition>;
  /** How many are in handlers' hands. */
  readonly open: () => number;
  readonly hand: (partition: AssignedPartition, waiting: PendingRecord) => void;
  /** There was room that nothing at hand could fill. */
  readonly hungry: () => void;
}

/** Gives out what was read, a record of each partition in turn, never more than the prefetch at once. */
class Dispatcher {
  readonly #parts: DispatcherParts;
  #paused = false;
  #busy = false;
  #turn = 0;
  #timer: CancelTimer | undefined;

  constructor(parts: DispatcherParts) {
    this.#parts = parts;
  }

  pause(): void {
    this.#paused = true;
    this.#timer?.();
  }

  /** Hands out soon, though not inside the caller. */
  dispatchSoon(): void {
    void yieldToEventLoop().then(() => this.dispatchNow());
  }

  dispatchNow(): void {
    // A handler that settles at once comes back in here; the outer round goes on anyway.
    if (this.#busy || this.#paused) return;
    this.#busy = true;
    try {
      this.#dispatchAll();
    } finally {
      this.#busy = false;
    }
  }

  #dispatchAll(): void {
    const nowMs = systemClock.wallMs();
    while (!this.#paused && this.#parts.open() < this.#parts.prefetch) {
      const found = this.#takeNext([...this.#parts.partitions()], nowMs);
      if (found === undefined) {
        this.#parts.hungry();
        return this.#waitForDue(nowMs);
      }
      this.#parts.hand(...found);
    }
  }

  #takeNext(
    partitions: readonly AssignedPartition[],
    nowMs: number,
  ): [AssignedPartition, PendingRecord] | undefined {
    for (let n = 0; n < partitions.length; n++) {
      const turn = (this.#turn + n) % partitions.length;
      const partition = partitions[turn];
      const waiting = partition?.next(nowMs);
      if (partition === undefined || waiting === undefined) continue;
      this.#turn = turn + 1;
      return [partition, waiting];
    }
    return undefined;
  }

  #waitForDue(nowMs: number): void {
    this.#timer?.();
    const dueMs = Math.min(...[...this.#parts.partitions()].map((partition) => partition.nextDueMs()));
    if (dueMs === Infinity) return;
    this.#timer = after(Math.max(1, dueMs - nowMs), () => this.dispatchNow());
  }
}

interface PartitionsParts {
  readonly handOverMs: number;
  readonly commit: () => Promise<void>;
  /** We hold less than before: the group should hear of it. */
  readonly changed: () => void;
}

/** The partitions we hold. One that is taken away is kept until what was handed out of it has ended. */
class Partitions implements Iterable<AssignedPartition> {
  readonly #parts: PartitionsParts;
  readonly #held = new Map<string, AssignedPartition>();
  readonly #leaving = new Map<AssignedPartition, CancelTimer>();

  constructor(parts: PartitionsParts) {
    this.#parts = parts;
  }

  [Symbol.iterator](): Iterator<AssignedPartition> {
    return this.#held.values();
  }

  listOwned(): readonly OwnedPartitions[] {
    return groupByTopic([...this.#held.values()], ({ topicId }) => topicId).map(([topicId, held]) => ({
      topicId,
      partitions: held.map(({ partition }) => partition),
    }));
  }

  /** Takes what is new and begins to give away what is no longer ours. */
  assign(
    assignment: readonly OwnedPartitions[],
    make: (topicId: string, partition: number) => AssignedPartition | undefined,
  ): void {
    const wanted = new Set<string>();
    for (const { topicId, partitions } of assignment) {
      for (const partition of partitions) {
        const key = `${topicId}/${partition}`;
        wanted.add(key);
        const made = this.#held.has(key) ? undefined : make(topicId, partition);
        if (made !== undefined) this.#held.set(key, made);
      }
    }
    for (const partition of this.#held.values())
      if (!wanted.has(partition.key)) this.#startRelease(partition);
  }

  /** A delivery of it has ended: it may have been the last one. */
  noteDeliveryEnd(partition: AssignedPartition): void {
    if (partition.deliveries.size > 0 || !this.#leaving.has(partition)) return;
    void this.#finishRelease(partition);
  }

  abandonAll(): void {
    for (const partition of this.#held.values()) {
      this.#leaving.get(partition)?.();
      partition.abandon();
    }
    this.#leaving.clear();
    this.#held.clear();
  }

  #startRelease(partition: AssignedPartition): void {
    if (this.#leaving.has(partition)) return;
    partition.leave();
    // What cannot be finished in time is aborted; it comes again at its new owner.
    this.#leaving.set(
      partition,
      after(this.#parts.handOverMs, () => partition.abandonDeliveries()),
    );
    this.noteDeliveryEnd(partition);
  }

  async #finishRelease(partition: AssignedPartition): Promise<void> {
    this.#leaving.get(partition)?.();
    this.#leaving.delete(partition);
    await this.#parts.commit();
    if (this.#held.get(partition.key) !== partition) return;
    this.#held.delete(partition.key);
    partition.abandon();
    this.#parts.changed();
  }
}

interface CommitterParts {
  readonly coordinator: Coordinator;
  readonly member: GroupMember;
  readonly partitions: () => Iterable<AssignedPartition>;
  readonly intervalMs: number;
}

const MAX_WAIT_MS = 2_000;
const MAX_FINAL_TRIES = 6;
const FINAL_BACKOFF = { firstMs: 50, maxMs: 300 };

/** Writes down how far each partition is done, with our epoch: a member that was replaced can no longer commit. */
class Committer {
  readonly #parts: CommitterParts;
  #timer: CancelTimer | undefined;
  #running: Promise<void> = Promise.resolve();
  #failures = 0;
  #closed = false;

  constructor(parts: CommitterParts) {
    this.#parts = parts;
  }

  /** Something was settled: it will be committed soon. */
  scheduleCommit(): void {
    if (this.#timer !== undefined || this.#closed) return;
    const backoff = { firstMs: this.#parts.intervalMs, maxMs: MAX_WAIT_MS, jitter: 0 };
    const waitMs = backoffMs(backoff, this.#failures + 1);
    this.#timer = after(waitMs, () => {
      this.#timer = undefined;
      void this.commitNow();
    });
  }

  /** Commits what is done; resolves when the broker has answered, also if it could not take it. */
  commitNow(): Promise<void> {
    this.#running = this.#running.then(() => this.#runCommit());
    return this.#running;
  }

  /** The last commits before partitions go: tried a few times, since our epoch may be changing at this moment. */
  async commitFinally(): Promise<void> {
    for (let tries = 1; tries <= MAX_FINAL_TRIES; tries++) {
      await this.commitNow();
      if (this.#findUncommitted().length === 0 || !this.#parts.member.isMember) return;
      await sleep(backoffMs(FINAL_BACKOFF, tries));
    }
  }

  close(): void {
    this.#closed = true;
    this.#timer?.();
  }

  async #runCommit(): Promise<void> {
    try {
      await this.#send();
      this.#failures = 0;
    } catch {
      // Nothing is lost by a commit that fails: the next one says more. The heartbeat tells people what is wrong.
      this.#failures += 1;
    }
    if (this.#findUncommitted().length > 0) this.scheduleCommit();
  }

  async #send(): Promise<void> {
    const dirty = this.#findUncommitted();
    const { coordinator, member } = this.#parts;
    if (dirty.length === 0 || !member.isMember) return;
    // The line as it is now: by the time of the answer the partition may have begun another one.
    const asked = dirty.map(({ topic, partition, line }) => ({ topic, partition, line, offset: line.safe }));
    const answers = await coordinator.commit(
      member.membership,
      asked.map(({ topic, partition, offset }) => ({ topic, partition, offset })),
    );
    for (const { topic, partition, line, offset } of asked) {
      const answer = answers.find((found) => found.topic === topic && found.partition === partition);
      if (answer?.code === codes.none) line.noteCommit(offset);
    }
    const failed = answers.find(({ code }) => code !== codes.none)?.code;
    if (failed === codes.unknownMember || failed === codes.fencedMember) member.loseMembership();
    else if (failed !== undefined) throw new Error(`commit: ${codeText(failed)}`);
  }

  #findUncommitted(): AssignedPartition[] {
    return [...this.#parts.partitions()].filter(
      ({ state, line }) => (state === "open" || state === "leaving") && line.safe > line.committed,
    );
  }
}
