import { isSagaboxError } from "../../errors/index.ts";
import {
  after,
  type CancelTimer,
  Loop,
  randomToken,
  systemClock,
  withDeadline,
  yieldToEventLoop,
} from "../../runtime/index.ts";
import { type Consumption, type Delivery, fromWire, type Subscription } from "../../transport/index.ts";
import { AssignedPartition, Partitions, type PendingRecord, type Source } from "./assigned-partition.ts";
import { describeConnectionError } from "./connections.ts";
import { Coordinator, type Offset } from "./coordinator.ts";
import { type FetchedPartition, type KafkaDriver, NoAnswerError, type OwnedPartitions } from "./driver.ts";
import { Committer, GroupMember } from "./group-member.ts";
import { listOffsets, PartitionStarter, prepareGroup } from "./group-offsets.ts";
import { codes, codeText, isStaleView } from "./kafka-codes.ts";
import { KafkaDelivery } from "./kafka-delivery.ts";
import type { KafkaSettings } from "./options.ts";
import type { RecordCopier } from "./record-copier.ts";
import { readAttempt, toTextHeaders } from "./record-headers.ts";
import type { TopicDirectory } from "./topic-directory.ts";
import type { Topology } from "./topology.ts";

export interface SubscriberParts {
  readonly driver: KafkaDriver;
  readonly directory: TopicDirectory;
  readonly topology: Topology;
  readonly settings: KafkaSettings;
  readonly copies: RecordCopier;
  readonly subscription: Subscription;
  readonly receive: (delivery: Delivery) => void;
}

/** How long `start` waits to join the group. Joining continues in the background after that. */
const MAX_JOIN_MS = 15_000;
/** `start` stops waiting after this many failures without an answer or without permission. */
const MAX_START_FAILURES = 3;
const MAX_CLOSE_MS = 10_000;

/** One member of a consumer group: fetches assigned partitions, delivers records and commits settled offsets. */
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
    const coordinatorTimeoutMs = Math.min(settings.timeoutMs, Math.max(1_000, settings.sessionTimeoutMs / 3));
    const groupName = topology.groupName(service, group);
    this.#coordinator = new Coordinator(driver, groupName, `group-${name}`, coordinatorTimeoutMs);
    this.#member = new GroupMember({
      coordinator: this.#coordinator,
      topics: [...this.#sources.keys()],
      sessionTimeoutMs: settings.sessionTimeoutMs,
      handOverMs: settings.handOverMs,
      prepare: () => this.#prepare(),
      owned: () => this.#partitions.listOwned(),
      onAssigned: (assignment) => this.#applyAssignment(assignment),
      onFenced: () => this.#partitions.abandonAll(),
    });
    const shared = { driver, directory, coordinator: this.#coordinator, member: this.#member };
    const partitions = (): Iterable<AssignedPartition> => this.#partitions;
    this.#committer = new Committer({ ...shared, partitions, intervalMs: settings.commitIntervalMs });
    this.#partitions = new Partitions({
      handOverMs: settings.handOverMs,
      commit: () => this.#committer.commitFinally(),
      onRelease: () => this.#member.wake(),
    });
    this.#starter = new PartitionStarter({ ...shared, partitions, onStarted: () => this.#fetcher.wake() });
    this.#fetcher = new Fetcher({
      ...shared,
      partitions,
      channel: `fetch-${name}`,
      waitMs: settings.fetchWaitMs,
      minBuffered: prefetch,
      onFetched: () => this.#dispatcher.dispatchNow(),
      warn: settings.warn,
    });
    this.#dispatcher = new Dispatcher({
      prefetch,
      partitions,
      countOpen: () => this.#open,
      deliver: (partition, waiting) => this.#deliver(partition, waiting),
      onIdle: () => this.#fetcher.wake(),
    });
  }

  /** Resolves when the start offsets are committed and the group is joined, or when the broker cannot be reached. */
  async start(): Promise<void> {
    let failures = 0;
    let giveUp: () => void = () => undefined;
    const unreachable = new Promise<void>((resolve) => (giveUp = resolve));
    const joined = this.#member
      .start((error) => {
        failures += error instanceof NoAnswerError || isSagaboxError(error) ? 1 : 0;
        if (failures === MAX_START_FAILURES) giveUp();
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
    const error = this.#member.lastError ?? this.#starter.lastError ?? this.#fetcher.lastError;
    if (error !== undefined) return { ok: false, detail: describeConnectionError(error) };
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
    // Closing the connections ends all work that did not finish in time.
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
        onSettled: (settled, how) => this.#finishDelivery(partition, waiting, settled, how),
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
      partition.offsets.complete(waiting.record.offset);
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
  /** Counts the deliveries in flight. */
  readonly countOpen: () => number;
  readonly deliver: (partition: AssignedPartition, waiting: PendingRecord) => void;
  /** Called when another delivery would be allowed, but no buffered record is due. */
  readonly onIdle: () => void;
}

/** Delivers buffered records, one of each partition in turn, with at most `prefetch` deliveries in flight. */
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

  /** Delivers in a later turn of the event loop, not inside the caller. */
  dispatchSoon(): void {
    void yieldToEventLoop().then(() => this.dispatchNow());
  }

  dispatchNow(): void {
    // A handler that settles at once calls this again; the outer call continues anyway.
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
    while (!this.#paused && this.#parts.countOpen() < this.#parts.prefetch) {
      const found = this.#takeNext([...this.#parts.partitions()], nowMs);
      if (found === undefined) {
        this.#parts.onIdle();
        return this.#waitForDue(nowMs);
      }
      this.#parts.deliver(...found);
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

interface FetcherParts {
  readonly driver: KafkaDriver;
  readonly directory: TopicDirectory;
  readonly channel: string;
  readonly waitMs: number;
  /** A partition that buffers fewer records than this is fetched again. */
  readonly minBuffered: number;
  readonly partitions: () => Iterable<AssignedPartition>;
  readonly onFetched: () => void;
  readonly warn: (warning: string) => void;
}

interface FetchPosition {
  readonly partition: AssignedPartition;
  readonly from: number;
}

const NO_LEADER = -1;
const PARTITION_BYTES = 1_048_576;
const REQUEST_BYTES = 8_388_608;
const NO_LEADER_MS = 250;

/** Runs one fetch loop per broker that leads owned partitions. Partitions with enough buffered records are skipped. */
export class Fetcher {
  readonly #parts: FetcherParts;
  readonly #loops = new Map<number, Loop>();
  #lastError: unknown;
  #stopped = false;

  constructor(parts: FetcherParts) {
    this.#parts = parts;
  }

  get lastError(): unknown {
    return this.#lastError;
  }

  /** Fetches again at once, because a partition has become readable. */
  wake(): void {
    if (this.#stopped) return;
    for (const partition of this.#parts.partitions()) this.#startLoop(this.#findLeader(partition));
    for (const loop of this.#loops.values()) loop.wake();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#parts.driver.drop(this.#parts.channel);
    await Promise.all([...this.#loops.values()].map((loop) => loop.stop()));
  }

  #startLoop(node: number): void {
    if (this.#loops.has(node)) return;
    const loop = new Loop({
      step: () => (node === NO_LEADER ? this.#findLeaders() : this.#fetchFrom(node)),
      onError: (error) => this.#recordError(error),
      maxBackoffMs: 2_000,
    });
    this.#loops.set(node, loop);
    void loop.start();
  }

  #findLeader({ topic, partition }: AssignedPartition): number {
    return this.#parts.directory.findKnown(topic)?.partitions[partition]?.leader ?? NO_LEADER;
  }

  #findReadable(node: number): AssignedPartition[] {
    return [...this.#parts.partitions()].filter(
      (partition) => partition.hasRoomFor(this.#parts.minBuffered) && this.#findLeader(partition) === node,
    );
  }

  async #fetchFrom(node: number): Promise<number> {
    const readable = this.#findReadable(node);
    if (readable.length === 0) return Infinity;
    const { driver, channel, waitMs } = this.#parts;
    const requested = new Map<string, FetchPosition>(
      readable.map((partition) => [partition.key, { partition, from: partition.position }]),
    );
    const fetched = await driver.fetch(channel, node, {
      waitMs,
      maxBytes: REQUEST_BYTES,
      partitions: readable.map(({ topicId, partition, position }) => ({
        topicId,
        partition,
        offset: position,
        maxBytes: PARTITION_BYTES,
      })),
    });
    this.#lastError = undefined;
    let repaired = false;
    for (const found of fetched) {
      const request = requested.get(`${found.topicId}/${found.partition}`);
      if (request === undefined) continue;
      if (found.code === codes.none) request.partition.take(found, request.from);
      else repaired = (await this.#repair(request, found)) || repaired;
    }
    this.#parts.onFetched();
    return repaired ? NO_LEADER_MS : 0;
  }

  async #repair({ partition, from }: FetchPosition, found: FetchedPartition): Promise<boolean> {
    const { directory, driver, warn } = this.#parts;
    const { topic } = partition;
    if (found.code === codes.offsetOutOfRange) {
      const view = directory.findKnown(topic);
      const first = view === undefined ? [] : await listOffsets(driver, [view], "beginning");
      const offset = first.find((start) => start.partition === partition.partition)?.offset ?? found.logStart;
      warn(
        `Topic "${topic}", partition ${partition.partition}: offset ${from} is no longer in the log; ` +
          `reading continues at ${offset}. The consumer was away for longer than the topic's retention.`,
      );
      partition.restart(offset, from);
      return true;
    }
    if (isStaleView(found.code)) await directory.describe([topic]);
    else this.#lastError = new Error(`topic "${topic}": ${codeText(found.code)}`);
    this.wake();
    return true;
  }

  async #findLeaders(): Promise<number> {
    const lost = [...this.#parts.partitions()].filter(
      (partition) => this.#findLeader(partition) === NO_LEADER,
    );
    if (lost.length === 0) return Infinity;
    await this.#parts.directory.describe([...new Set(lost.map(({ topic }) => topic))]);
    this.wake();
    return NO_LEADER_MS;
  }

  // The broker may be gone for good, and other brokers may lead its partitions now.
  #recordError(error: unknown): void {
    this.#lastError = error;
    const topics = [...new Set([...this.#parts.partitions()].map(({ topic }) => topic))];
    if (topics.length === 0 || this.#stopped) return;
    this.#parts.directory.describe(topics).then(
      () => this.wake(),
      () => undefined,
    );
  }
}
