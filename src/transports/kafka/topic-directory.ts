import { SagaboxError } from "../../errors/index.ts";
import { sleep, systemClock, withDeadline } from "../../runtime/index.ts";
import { codes, codeText } from "./kafka-codes.ts";
import type { KafkaDriver, NewTopic, TopicView } from "./driver.ts";
import type { KafkaSettings, TopicSettings } from "./options.ts";

export type TopicPurpose = "messages" | "retry" | "dead letters";

const FRESH_MS = 60_000;
const PROPAGATION_MS = 10_000;
/** Bytes for the headers that a retry or a dead letter adds to a message. */
const DEAD_LETTER_NOTE_BYTES = 131_072;

interface KnownTopic {
  readonly view: TopicView;
  readonly seenMs: number;
}

/** Caches topics and their partition leaders, creates missing topics, and checks the settings of each topic once. */
export class TopicDirectory {
  readonly #driver: KafkaDriver;
  readonly #settings: KafkaSettings;
  readonly #known = new Map<string, KnownTopic>();
  readonly #lookups = new Map<string, Promise<TopicView>>();
  readonly #examined = new Set<string>();
  readonly #warned = new Set<string>();

  constructor(driver: KafkaDriver, settings: KafkaSettings) {
    this.#driver = driver;
    this.#settings = settings;
  }

  /** Returns the topic, cached up to a minute, and creates it if missing. Throws TRANSPORT_UNROUTABLE if it cannot. */
  ensure(name: string, purpose: TopicPurpose = "messages"): Promise<TopicView> {
    const known = this.#known.get(name);
    if (known !== undefined && systemClock.monotonicMs() - known.seenMs < FRESH_MS)
      return Promise.resolve(known.view);
    const running = this.#lookups.get(name);
    if (running !== undefined) return running;
    const lookup = this.#find(name, purpose).finally(() => this.#lookups.delete(name));
    this.#lookups.set(name, lookup);
    return lookup;
  }

  /** Returns the cached topic, however old. */
  findKnown(name: string): TopicView | undefined {
    return this.#known.get(name)?.view;
  }

  findName(topicId: string): string | undefined {
    for (const [name, { view }] of this.#known) if (view.id === topicId) return name;
    return undefined;
  }

  /** Makes the next `ensure` ask the broker. */
  forget(name: string): void {
    const known = this.#known.get(name);
    if (known !== undefined) this.#known.set(name, { ...known, seenMs: -Infinity });
  }

  /** Looks up several topics without creating any. Missing topics are left out. */
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
      `Topic "${topic.name}" cannot be created: ${answer.detail || codeText(answer.code)}.`,
    );
  }

  // The controller knows a new topic before every broker knows it and its partitions have leaders.
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
        `Topic "${view.name}" now has ${view.partitions.length} partitions, before ${before.partitions.length}: keys ` +
          `move to other partitions, and the order of a key is not kept across the change.`,
      );
    }
    this.#known.set(view.name, { view, seenMs: systemClock.monotonicMs() });
  }

  // P-08: confirmed messages are only as durable as the topic's replication.
  async #checkSettings(view: TopicView, nodes: number): Promise<void> {
    if (this.#examined.has(view.name)) return;
    this.#examined.add(view.name);
    const copies = Math.min(...view.partitions.map(({ replicas }) => replicas));
    if (nodes === 1)
      return this.#warnOnce("The cluster has a single broker: messages are lost if its disk fails.");
    if (copies === 1)
      return this.#warnOnce(
        `Topic "${view.name}" has a single replica: messages are lost if that broker fails.`,
      );
    const settings = await withDeadline(
      this.#driver.topicSettings([view.name]),
      5_000,
      () => new Map(),
    ).catch(() => new Map<string, ReadonlyMap<string, string>>());
    if (settings.get(view.name)?.get("min.insync.replicas") === "1")
      this.#warnOnce(
        `Topic "${view.name}" has min.insync.replicas=1: a message confirmed by one broker alone is lost if it fails.`,
      );
  }

  #warnOnce(warning: string): void {
    if (this.#warned.has(warning)) return;
    this.#warned.add(warning);
    this.#settings.warn(warning);
  }
}

/** Returns the settings of a new topic. */
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
    code === codes.unknownTopic ? "does not exist, and creating topics is switched off" : codeText(code);
  return new SagaboxError("TRANSPORT_UNROUTABLE", `Topic "${name}": ${reason}.`);
}
