import { isSagaboxError } from "../../errors/index.ts";
import { randomToken, withDeadline } from "../../runtime/index.ts";
import { fromWire, type Consumption, type Delivery, type Subscription } from "../../transport/index.ts";
import { AssignedPartition, type Source, type Waiting } from "./assigned-partition.ts";
import { Committer } from "./committer.ts";
import { messageOf } from "./connections.ts";
import { Coordinator, type Offset } from "./coordinator.ts";
import type { Copies } from "./copies.ts";
import { NoAnswer, type KafkaDriver, type OwnedPartitions } from "./driver.ts";
import { Fetcher } from "./fetcher.ts";
import { GroupMember } from "./group-member.ts";
import { prepareGroup } from "./group-start.ts";
import { HandOut } from "./hand-out.ts";
import { KafkaDelivery } from "./kafka-delivery.ts";
import type { KafkaSettings } from "./options.ts";
import { Partitions } from "./partitions.ts";
import { PartitionStarter } from "./partition-starter.ts";
import { attemptOf, headerTexts } from "./record-headers.ts";
import type { TopicDirectory } from "./topic-directory.ts";
import type { Topology } from "./topology.ts";

export interface SubscriberParts {
  readonly driver: KafkaDriver;
  readonly directory: TopicDirectory;
  readonly topology: Topology;
  readonly settings: KafkaSettings;
  readonly copies: Copies;
  readonly subscription: Subscription;
  readonly receive: (delivery: Delivery) => void;
}

/** A group that the cluster is still making room for is waited for; what has no answer or no right is tried later. */
const PATIENCE_MS = 15_000;
const UNREACHABLE_AFTER = 3;
const CLOSING_MS = 10_000;

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
  readonly #handOut: HandOut;
  #starts: readonly Offset[] = [];
  #open = 0;
  #closed: Promise<void> | undefined;

  constructor(parts: SubscriberParts) {
    this.#parts = parts;
    const { driver, directory, topology, settings, copies, subscription } = parts;
    const { service, group, prefetch } = subscription;
    const name = randomToken().slice(0, 8);
    this.#sources = sourcesOf(topology, copies, subscription);
    const askMs = Math.min(settings.timeoutMs, Math.max(1_000, settings.sessionTimeoutMs / 3));
    const groupName = topology.group(service, group);
    this.#coordinator = new Coordinator(driver, groupName, `group-${name}`, askMs);
    this.#member = new GroupMember({
      coordinator: this.#coordinator,
      topics: [...this.#sources.keys()],
      sessionTimeoutMs: settings.sessionTimeoutMs,
      handOverMs: settings.handOverMs,
      prepare: () => this.#prepare(),
      owned: () => this.#partitions.owned(),
      assigned: (assignment) => this.#assigned(assignment),
      fenced: () => this.#partitions.loseAll(),
    });
    const shared = { driver, directory, coordinator: this.#coordinator, member: this.#member };
    const partitions = (): Iterable<AssignedPartition> => this.#partitions;
    this.#committer = new Committer({ ...shared, partitions, intervalMs: settings.commitIntervalMs });
    this.#partitions = new Partitions({
      handOverMs: settings.handOverMs,
      commit: () => this.#committer.finish(),
      changed: () => this.#member.wake(),
    });
    this.#starter = new PartitionStarter({ ...shared, partitions, started: () => this.#fetcher.wake() });
    this.#fetcher = new Fetcher({
      ...shared,
      partitions,
      lane: `fetch-${name}`,
      waitMs: settings.fetchWaitMs,
      atLeast: prefetch,
      fetched: () => this.#handOut.now(),
      warn: settings.warn,
    });
    this.#handOut = new HandOut({
      prefetch,
      partitions,
      open: () => this.#open,
      hand: (partition, waiting) => this.#hand(partition, waiting),
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
        failures += error instanceof NoAnswer || isSagaboxError(error) ? 1 : 0;
        if (failures === UNREACHABLE_AFTER) giveUp();
      })
      .then(() => this.#starter.settled());
    await withDeadline(Promise.race([joined, unreachable]), PATIENCE_MS, () => undefined);
  }

  async pause(): Promise<void> {
    this.#handOut.pause();
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  health(): { readonly ok: boolean; readonly detail?: string } {
    const trouble = this.#member.trouble ?? this.#starter.trouble ?? this.#fetcher.trouble;
    if (trouble !== undefined) return { ok: false, detail: messageOf(trouble) };
    return this.#member.isMember ? { ok: true } : { ok: false, detail: "not a member of the group yet" };
  }

  async #close(): Promise<void> {
    this.#handOut.pause();
    for (const partition of this.#partitions) partition.leave();
    for (const partition of this.#partitions) partition.loseDeliveries();
    const leaving = async (): Promise<void> => {
      await this.#starter.stop();
      await this.#committer.finish();
      await this.#member.leave();
      await this.#fetcher.stop();
    };
    await withDeadline(leaving(), CLOSING_MS, () => undefined);
    // What did not end by itself ends with its connections.
    this.#committer.close();
    this.#partitions.loseAll();
    void this.#fetcher.stop();
    this.#coordinator.close();
  }

  async #prepare(): Promise<void> {
    this.#starts = await prepareGroup(
      { ...this.#parts, coordinator: this.#coordinator },
      this.#parts.subscription,
    );
    await this.#starter.begin(this.#starts);
  }

  async #assigned(assignment: readonly OwnedPartitions[]): Promise<void> {
    const { directory } = this.#parts;
    const unknown = assignment.some(({ topicId }) => directory.nameOf(topicId) === undefined);
    if (unknown) await directory.look([...this.#sources.keys()]);
    this.#partitions.assign(assignment, (topicId, partition) => {
      const topic = directory.nameOf(topicId);
      const source = topic === undefined ? undefined : this.#sources.get(topic);
      if (topic === undefined || source === undefined) return undefined;
      return new AssignedPartition(topic, topicId, partition, source);
    });
    this.#starter.wake();
  }

  #hand(partition: AssignedPartition, waiting: Waiting): void {
    const { copies, subscription, receive } = this.#parts;
    const { record } = waiting;
    const { topic } = partition.source;
    const key = record.key?.toString("utf8") ?? null;
    const received = fromWire({ body: record.value, headers: headerTexts(record.headers), topic, key });
    const keyed = subscription.ordered && received.message.key !== null;
    const delivery: KafkaDelivery = new KafkaDelivery(
      {
        ...received,
        attempt: attemptOf(record.headers),
        orderKey: keyed ? `${topic}/${received.message.key}` : null,
      },
      {
        ended: (ended, how) => this.#ended(partition, waiting, ended, how),
        copyForRetry: (options) => copies.retry(topic, record, options, delivery.signal),
        copyForDead: (note) => copies.bury(topic, record, note, delivery.signal),
      },
    );
    partition.deliveries.add(delivery);
    this.#open += 1;
    receive(delivery);
  }

  #ended(
    partition: AssignedPartition,
    waiting: Waiting,
    delivery: KafkaDelivery,
    how: "done" | "released" | "lost",
  ): void {
    this.#open -= 1;
    partition.deliveries.delete(delivery);
    if (how === "done") {
      partition.line.done(waiting.record.offset);
      this.#committer.touch();
    } else if (how === "released") partition.giveBack(waiting);
    this.#partitions.ended(partition);
    this.#handOut.soon();
  }
}

function sourcesOf(
  topology: Topology,
  copies: Copies,
  { topics }: Subscription,
): ReadonlyMap<string, Source> {
  const own = topics.map(({ topic }) => [topology.topic(topic), { topic, retries: false }] as const);
  const later = [...copies.retryTopics()].map(([name, topic]) => [name, { topic, retries: true }] as const);
  return new Map<string, Source>([...own, ...later]);
}
