import { Loop, systemClock } from "../../runtime/index.ts";
import type { Subscription, TopicRequest } from "../../transport/index.ts";
import type { AssignedPartition } from "./assigned-partition.ts";
import { type Coordinator, type Membership, noMembership, type Offset } from "./coordinator.ts";
import type { KafkaDriver, OffsetAt, TopicPartition, TopicView } from "./driver.ts";
import type { GroupMember } from "./group-member.ts";
import { codes, codeText } from "./kafka-codes.ts";
import type { TopicDirectory } from "./topic-directory.ts";
import type { Topology } from "./topology.ts";

interface Group {
  readonly node: number;
  readonly name: string;
}

const MAX_CONCURRENT_GROUPS = 8;
/** A cluster may have thousands of groups, few of which read our topics, so all groups are listed only this often. */
const GROUP_REFRESH_MS = 30_000;

/** Finds the topics for which a group other than `exceptGroup` has committed offsets. */
export async function findClaimedTopics(
  driver: KafkaDriver,
  views: readonly TopicView[],
  exceptGroup: string,
): Promise<ReadonlySet<string>> {
  const others = (await listAllGroups(driver)).filter(({ name }) => name !== exceptGroup);
  const claimed = new Set<string>();
  await forEachGroup(driver, others, views.flatMap(toTopicPartitions), (_, offsets) => {
    for (const { topic } of offsets) claimed.add(topic);
  });
  return claimed;
}

/** Measures how far the slowest group of a topic is behind. Groups that read none of the topics are rarely asked. */
export class GroupLags {
  readonly #driver: KafkaDriver;
  readonly #topics = new Set<string>();
  #readers: readonly Group[] = [];
  #lookedMs = -Infinity;

  constructor(driver: KafkaDriver) {
    this.#driver = driver;
  }

  /** Returns records behind the end by topic. Topics without a group are left out. */
  async findLargestLags(views: readonly TopicView[]): Promise<ReadonlyMap<string, number>> {
    const ends = new Map(
      (await listOffsets(this.#driver, views, "end")).map((end) => [partitionKey(end), end.offset]),
    );
    const groups = await this.#findGroups(views);
    const lags = new Map<string, number>();
    const readers: Group[] = [];
    await forEachGroup(this.#driver, groups, views.flatMap(toTopicPartitions), (group, offsets) => {
      if (offsets.length > 0) readers.push(group);
      for (const [topic, lag] of computeLags(offsets, ends))
        lags.set(topic, Math.max(lag, lags.get(topic) ?? 0));
    });
    this.#readers = readers;
    return lags;
  }

  async #findGroups(views: readonly TopicView[]): Promise<readonly Group[]> {
    const nowMs = systemClock.monotonicMs();
    const isKnown = views.every(({ name }) => this.#topics.has(name));
    if (isKnown && this.#readers.length > 0 && nowMs - this.#lookedMs < GROUP_REFRESH_MS)
      return this.#readers;
    const groups = await listAllGroups(this.#driver);
    this.#lookedMs = nowMs;
    this.#topics.clear();
    for (const { name } of views) this.#topics.add(name);
    return groups;
  }
}

function computeLags(offsets: readonly Offset[], ends: ReadonlyMap<string, number>): Map<string, number> {
  const lags = new Map<string, number>();
  for (const { topic, partition, offset } of offsets) {
    const behind = Math.max(0, (ends.get(partitionKey({ topic, partition })) ?? offset) - offset);
    lags.set(topic, (lags.get(topic) ?? 0) + behind);
  }
  return lags;
}

async function listAllGroups(driver: KafkaDriver): Promise<readonly Group[]> {
  const { nodes } = await driver.describe([]);
  const found = await Promise.all(
    nodes.map(async (node) => (await driver.groups(node)).map((name) => ({ node, name }))),
  );
  return found.flat();
}

async function forEachGroup(
  driver: KafkaDriver,
  groups: readonly Group[],
  wanted: readonly TopicPartition[],
  visit: (group: Group, offsets: readonly Offset[]) => void,
): Promise<void> {
  for (let at = 0; at < groups.length; at += MAX_CONCURRENT_GROUPS) {
    await Promise.all(
      groups.slice(at, at + MAX_CONCURRENT_GROUPS).map(async (group) => {
        const request = { group: group.name, member: null, epoch: -1, wanted };
        visit(group, (await driver.committed("control", group.node, request)).offsets);
      }),
    );
  }
}

function partitionKey({ topic, partition }: TopicPartition): string {
  return `${topic}/${partition}`;
}

/** Returns the offset of every partition of the topics at `at`. Throws if a partition's offset cannot be read. */
export async function listOffsets(
  driver: KafkaDriver,
  views: readonly TopicView[],
  at: OffsetAt,
): Promise<readonly Offset[]> {
  const byLeader = new Map<number, TopicPartition[]>();
  for (const { name, partitions } of views) {
    for (const [partition, { leader }] of partitions.entries())
      byLeader.set(leader, [...(byLeader.get(leader) ?? []), { topic: name, partition }]);
  }
  const answers = await Promise.all([...byLeader].map(([node, wanted]) => driver.offsets(node, at, wanted)));
  const failed = answers.flat().find(({ code }) => code !== codes.none);
  if (failed !== undefined)
    throw new Error(`cannot read offsets of "${failed.topic}": ${codeText(failed.code)}`);
  return answers.flat();
}

export function toTopicPartitions({ name, partitions }: TopicView): TopicPartition[] {
  return partitions.map((_, partition) => ({ topic: name, partition }));
}

interface GroupStartParts {
  readonly driver: KafkaDriver;
  readonly directory: TopicDirectory;
  readonly topology: Topology;
  readonly coordinator: Coordinator;
}

/**
 * Commits the start offsets of topics that are new to the group, for all partitions in one commit, before the first
 * member reads. From then on no record is missed if a worker crashes. While the group has members, only a member may
 * commit: the offsets are then returned, and the caller commits them after joining.
 */
export async function prepareGroup(
  parts: GroupStartParts,
  subscription: Subscription,
): Promise<readonly Offset[]> {
  const { directory, topology, coordinator } = parts;
  const views = new Map<TopicRequest, TopicView>();
  for (const request of subscription.topics)
    views.set(request, await directory.ensure(topology.topicName(request.topic)));
  const known = await coordinator.committed(noMembership, [...views.values()].flatMap(toTopicPartitions));
  if (known.code !== codes.none && known.code !== codes.groupNotFound)
    throw new Error(`group ${coordinator.group}: ${codeText(known.code)}`);
  const read = new Set(known.offsets.map(({ topic }) => topic));
  const starts: Offset[] = [];
  for (const [request, view] of views)
    if (!read.has(view.name)) starts.push(...(await findStart(parts, request, view)));
  if (starts.length === 0) return [];
  return (await commitStarts(coordinator, noMembership, starts)) ? [] : starts;
}

/** Commits start offsets. Returns false if the broker does not accept the membership (its epoch may have changed). */
export async function commitStarts(
  coordinator: Coordinator,
  membership: Membership,
  starts: readonly Offset[],
): Promise<boolean> {
  const answers = await coordinator.commit(membership, starts);
  const failed = answers.find(({ code }) => code !== codes.none);
  if (failed === undefined) return true;
  const known: readonly number[] = [codes.unknownMember, codes.staleMember, codes.fencedMember];
  if (known.includes(failed.code)) return false;
  throw new Error(`group ${coordinator.group} could not commit its start offsets: ${codeText(failed.code)}`);
}

async function findStart(
  { driver, coordinator }: GroupStartParts,
  { from }: TopicRequest,
  view: TopicView,
): Promise<readonly Offset[]> {
  if (typeof from === "object") return findStartAtTime(driver, view, from.time);
  const claimed =
    from === "unclaimed" && (await findClaimedTopics(driver, [view], coordinator.group)).size > 0;
  const at = from === "now" || claimed ? "end" : "beginning";
  return listOffsets(driver, [view], at);
}

// The end is read first, so that a record stored between the two requests is found by its time and not skipped.
async function findStartAtTime(driver: KafkaDriver, view: TopicView, time: Date): Promise<readonly Offset[]> {
  const ends = await listOffsets(driver, [view], "end");
  const found = await listOffsets(driver, [view], { timeMs: Math.max(0, time.getTime()) });
  const offsets = new Map(found.map(({ partition, offset }) => [partition, offset]));
  return ends.map((end) => {
    const offset = offsets.get(end.partition) ?? -1;
    return offset < 0 ? end : { ...end, offset };
  });
}

interface StarterParts {
  readonly driver: KafkaDriver;
  readonly directory: TopicDirectory;
  readonly coordinator: Coordinator;
  readonly member: GroupMember;
  readonly partitions: () => Iterable<AssignedPartition>;
  readonly onStarted: () => void;
}

/** Wait after a commit with an outdated epoch; the next heartbeat returns the new epoch. */
const NEXT_EPOCH_MS = 50;

/** Finds the start offsets of newly assigned partitions. */
export class PartitionStarter {
  readonly #parts: StarterParts;
  readonly #loop: Loop;
  #lastError: unknown;
  #pending: readonly Offset[] = [];
  #pendingListeners: (() => void)[] = [];

  constructor(parts: StarterParts) {
    this.#parts = parts;
    this.#loop = new Loop({
      step: () => this.#step(),
      onError: (error) => (this.#lastError = error),
      maxBackoffMs: 1_000,
    });
  }

  get lastError(): unknown {
    return this.#lastError;
  }

  /** Starts the loop. `pending` are start offsets of the group, committed before any partition is read. */
  async start(pending: readonly Offset[]): Promise<void> {
    this.#pending = pending;
    await this.#loop.start();
  }

  /** Resolves when the group's start offsets are committed. */
  waitForPending(): Promise<void> {
    if (this.#pending.length === 0) return Promise.resolve();
    return new Promise((resolve) => this.#pendingListeners.push(resolve));
  }

  wake(): void {
    this.#loop.wake();
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  async #step(): Promise<number> {
    if (!this.#parts.member.isMember) return Infinity;
    if (!(await this.#commitPending())) return NEXT_EPOCH_MS;
    const starting = [...this.#parts.partitions()].filter(({ state }) => state === "starting");
    if (starting.length === 0) return Infinity;
    const { coordinator, member } = this.#parts;
    const known = await coordinator.committed(member.membership, starting);
    if (known.code === codes.staleMember) return NEXT_EPOCH_MS;
    if (known.code !== codes.none) throw new Error(`group ${coordinator.group}: ${codeText(known.code)}`);
    const starts = toOffsetMap(known.offsets);
    const fresh = starting.filter((partition) => !starts.has(partitionKey(partition)));
    if (fresh.length > 0 && !(await this.#startAtBeginning(fresh, starts))) return NEXT_EPOCH_MS;
    for (const partition of starting) {
      const offset = starts.get(partitionKey(partition));
      if (offset !== undefined && partition.state === "starting") partition.begin(offset);
    }
    this.#lastError = undefined;
    this.#parts.onStarted();
    return 0;
  }

  // Another member may have joined at the same moment and committed first. Its start offsets are as good as ours.
  async #commitPending(): Promise<boolean> {
    if (this.#pending.length === 0) return true;
    const { coordinator, member } = this.#parts;
    const known = await coordinator.committed(member.membership, this.#pending);
    if (known.code === codes.staleMember) return false;
    const committed = new Set(known.offsets.map(({ topic }) => topic));
    const missing = this.#pending.filter(({ topic }) => !committed.has(topic));
    if (missing.length > 0 && !(await commitStarts(coordinator, member.membership, missing))) return false;
    this.#pending = [];
    for (const listener of this.#pendingListeners.splice(0)) listener();
    return true;
  }

  // A partition without a committed offset was added to a topic later or belongs to a retry topic. It is read in full.
  async #startAtBeginning(
    fresh: readonly AssignedPartition[],
    startOffsets: Map<string, number>,
  ): Promise<boolean> {
    const { driver, directory, coordinator, member } = this.#parts;
    const names = [...new Set(fresh.map(({ topic }) => topic))];
    const first = toOffsetMap(await listOffsets(driver, await directory.describe(names), "beginning"));
    const starts = fresh.map(({ topic, partition }) => ({
      topic,
      partition,
      offset: first.get(partitionKey({ topic, partition })) ?? 0,
    }));
    if (!(await commitStarts(coordinator, member.membership, starts))) return false;
    for (const start of starts) startOffsets.set(partitionKey(start), start.offset);
    return true;
  }
}

function toOffsetMap(offsets: readonly Offset[]): Map<string, number> {
  return new Map(offsets.map((found) => [partitionKey(found), found.offset]));
}
