import { isSagaboxError } from "../../errors/index.ts";
import { randomToken, withDeadline } from "../../runtime/index.ts";
import { fromWire, type Consumption, type Delivery, type Subscription } from "../../transport/index.ts";
import { AssignedPartition, type Source, type PendingRecord } from "./assigned-partition.ts";
import { Committer } from "./committer.ts";
import { describeConnectionError } from "./connections.ts";
import { Coordinator, type Offset } from "./coordinator.ts";
import type { RecordCopier } from "./record-copier.ts";
import { NoAnswerError, type KafkaDriver, type OwnedPartitions } from "./driver.ts";
import { Fetcher } from "./fetcher.ts";
import { GroupMember } from "./group-member.ts";
import { prepareGroup } from "./group-start.ts";
import { Dispatcher } from "./dispatcher.ts";
import { KafkaDelivery } from "./kafka-delivery.ts";
import type { KafkaSettings } from "./options.ts";
import { Partitions } from "./partitions.ts";
import { PartitionStarter } from "./partition-starter.ts";
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
