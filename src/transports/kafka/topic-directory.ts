import { SagaboxError } from "../../errors/index.ts";
import { sleep, systemClock, withDeadline } from "../../runtime/index.ts";
import { codes, codeText } from "./kafka-codes.ts";
import type { KafkaDriver, NewTopic, TopicView } from "./driver.ts";
import type { KafkaSettings } from "./options.ts";
import type { TopicSettings } from "./topic-options.ts";

export type TopicPurpose = "messages" | "retry" | "dead letters";

const FRESH_MS = 60_000;
const PROPAGATION_MS = 10_000;
/** Room for what is written beside a message when it is tried again or buried. */
const DEAD_LETTER_NOTE_BYTES = 131_072;

interface KnownTopic {
  readonly view: TopicView;
  readonly seenMs: number;
}

/** What we know of topics: where their partitions are led. Missing ones are made, others are looked at once. */
export class TopicDirectory {
  readonly #driver: KafkaDriver;
  readonly #settings: KafkaSettings;
  readonly #known = new Map<string, KnownTopic>();
  readonly #asking = new Map<string, Promise<TopicView>>();
  readonly #examined = new Set<string>();
  readonly #warned = new Set<string>();

  constructor(driver: KafkaDriver, settings: KafkaSettings) {
    this.#driver = driver;
    this.#settings = settings;
  }

  /** The topic as last seen, made if it was not there. */
  ensure(name: string, purpose: TopicPurpose = "messages"): Promise<TopicView> {
    const known = this.#known.get(name);
    if (known !== undefined && systemClock.monotonicMs() - known.seenMs < FRESH_MS)
      return Promise.resolve(known.view);
    const asking = this.#asking.get(name);
    if (asking !== undefined) return asking;
    const finding = this.#find(name, purpose).finally(() => this.#asking.delete(name));
    this.#asking.set(name, finding);
    return finding;
  }

  /** As last seen, however long ago. */
  findKnown(name: string): TopicView | undefined {
    return this.#known.get(name)?.view;
  }

  findName(topicId: string): string | undefined {
    for (const [name, { view }] of this.#known) if (view.id === topicId) return name;
    return undefined;
  }

  /** The next look asks the broker. */
  forget(name: string): void {
    const known = this.#known.get(name);
    if (known !== undefined) this.#known.set(name, { ...known, seenMs: -Infinity });
  }

  /** Looks at several at once, making none. */
  async describe(names: readonly string[]): Promise<readonly TopicView[]> {
    const { topics } = await this.#driver.describe(names);
    const found = topics.filter(({ code }) => code === codes.none);
    for (const view of found) this.#remember(view);
    return found;
  }

  async #find(name: string, purpose: TopicPurpose): Promise<TopicView> {
    const { topics, nodes } = await this.#driver.describe([name]);
    let view = topics[0];
    if (view?.code === codes.unknownTopic && this.#settings.topics.create) {
      await this.#create(planTopic(name, purpose, this.#settings.topics, nodes.length));
      view = await this.#waitForTopic(name);
    }
    if (view === undefined || view.code !== codes.none)
      throw topicMissing(name, view?.code ?? codes.unknownTopic);
    this.#remember(view);
    await this.#checkSettings(view, nodes.length);
    return view;
  }

  async #create(topic: NewTopic): Promise<void> {
    const [answer] = await this.#driver.createTopics([topic]);
    if (answer === undefined || answer.code === codes.none || answer.code === codes.topicExists) return;
    throw new SagaboxError(
      "TRANSPORT_UNROUTABLE",
      `Topic "${topic.name}" cannot be made: ${answer.detail || codeText(answer.code)}.`,
    );
  }

  // A new topic is known to the controller before each broker has heard of it and chosen leaders.
  async #waitForTopic(name: string): Promise<TopicView | undefined> {
    const endMs = systemClock.monotonicMs() + PROPAGATION_MS;
    for (;;) {
      const view = (await this.#driver.describe([name])).topics[0];
      const ready = view?.code === codes.none && view.partitions.every(({ leader }) => leader >= 0);
      if (ready || systemClock.monotonicMs() > endMs) return view;
      await sleep(20);
    }
  }

  #remember(view: TopicView): void {
    const before = this.#known.get(view.name)?.view;
    if (
      before !== undefined &&
      before.id === view.id &&
      before.partitions.length !== view.partitions.length
    ) {
      this.#settings.warn(
        `Topic "${view.name}" has ${view.partitions.length} partitions now, it had ${before.partitions.length}: keys ` +
          `move to other partitions, and the order of a key is not kept across the change.`,
      );
    }
    this.#known.set(view.name, { view, seenMs: systemClock.monotonicMs() });
  }

  // P-08: acknowledged messages are only as safe as their copies.
  async #checkSettings(view: TopicView, nodes: number): Promise<void> {
    if (this.#examined.has(view.name)) return;
    this.#examined.add(view.name);
    const copies = Math.min(...view.partitions.map(({ replicas }) => replicas));
    if (nodes === 1) return this.#warnOnce("The cluster has a single broker: what its disk loses is lost.");
    if (copies === 1)
      return this.#warnOnce(`Topic "${view.name}" has a single copy: what one broker loses is lost.`);
    const settings = await withDeadline(
      this.#driver.topicSettings([view.name]),
      5_000,
      () => new Map(),
    ).catch(() => new Map<string, ReadonlyMap<string, string>>());
    if (settings.get(view.name)?.get("min.insync.replicas") === "1")
      this.#warnOnce(
        `Topic "${view.name}" has min.insync.replicas=1: a message may be confirmed by one broker and lost with it.`,
      );
  }

  #warnOnce(warning: string): void {
    if (this.#warned.has(warning)) return;
    this.#warned.add(warning);
    this.#settings.warn(warning);
  }
}

/** What a new topic looks like. */
export function planTopic(
  name: string,
  purpose: TopicPurpose,
  topics: TopicSettings,
  nodes: number,
): NewTopic {
  const replication = topics.replication ?? Math.min(3, Math.max(1, nodes));
  const minInSync = topics.minInSync ?? (replication >= 3 ? 2 : 1);
  const retentionMs = purpose === "dead letters" ? topics.deadLetterRetentionMs : topics.retentionMs;
  const maxBytes = purpose === "messages" ? topics.maxBytes : topics.maxBytes + DEAD_LETTER_NOTE_BYTES;
  return {
    name,
    partitions:
      purpose === "messages" ? topics.partitions : purpose === "retry" ? Math.min(3, topics.partitions) : 1,
    replication,
    settings: {
      "cleanup.policy": "delete",
      "min.insync.replicas": String(minInSync),
      "max.message.bytes": String(maxBytes),
      ...(retentionMs === undefined ? {} : { "retention.ms": String(retentionMs) }),
    },
  };
}

function topicMissing(name: string, code: number): SagaboxError {
  const reason =
    code === codes.unknownTopic ? "is not there, and making topics is switched off" : codeText(code);
  return new SagaboxError("TRANSPORT_UNROUTABLE", `Topic "${name}": ${reason}.`);
}
