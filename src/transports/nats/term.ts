import type { ConsumerInfo } from "@nats-io/jetstream";
import { firstSequence, findConsumer, heartbeatMsFor, createConsumer } from "./consumers.ts";
import { isWithoutAnswer } from "./failure.ts";
import { readSlotKey, type Slot } from "./group-state.ts";
import type { Session } from "./link.ts";
import type { NatsSettings } from "./options.ts";
import { PartitionReader } from "./partition-reader.ts";
import { messageSubject, streamNames, type GroupNames } from "./topology.ts";

/** The time during which one member reads one partition. */
export interface Term {
  readonly epoch: number;
  /** Start sequence of the term. */
  readonly at: number;
  readonly reader: PartitionReader;
  draining: boolean;
  drained: boolean;
  /** Consumers of former terms. They are kept until the record shows that this term's consumer exists. */
  former: readonly string[];
}

interface TermOpenerParts {
  readonly settings: NatsSettings;
  readonly names: GroupNames;
  readonly window: number;
  readonly valid: () => boolean;
  readonly arrived: () => void;
  readonly gone: (key: string) => void;
}

// Terms that ended before their consumer was created leave gaps in the numbers.
const MAX_FORMER_TERMS = 8;

/**
 * Opens terms. The new consumer starts at the first message that was not acknowledged in the last term, so unsettled
 * messages of the predecessor come first and in order. Late acknowledgements of the predecessor go to the old consumer
 * and have no effect.
 */
export class TermOpener {
  readonly #parts: TermOpenerParts;

  constructor(parts: TermOpenerParts) {
    this.#parts = parts;
  }

  async open(session: Session, key: string, slot: Slot, before: Slot): Promise<Term> {
    const { settings, window, valid, arrived, gone } = this.#parts;
    const former = before.fresh === true ? [] : this.#formerConsumers(key, slot);
    const at = Math.max(slot.at, await this.#findFirstUnsettled(session, former));
    const info = await this.#createConsumer(session, key, slot.epoch, at);
    const from = Math.min(at, firstSequence(info)); // a crashed server may have lost its last messages
    const reader = new PartitionReader({
      session,
      topic: readSlotKey(key).topic,
      info,
      at: from,
      settled: slot.done ?? [],
      window,
      heartbeatMs: heartbeatMsFor(settings),
      valid,
      arrived,
      gone: () => gone(key),
    });
    return { epoch: slot.epoch, at: from, reader, draining: false, drained: false, former };
  }

  /**
   * Deletes the consumers of former terms once the record shows the current one. A consumer that cannot be deleted
   * during an election stays in `former`, and the next call deletes it. Never rejects.
   */
  async removeFormer({ jsm }: Session, term: Term): Promise<void> {
    const { messages } = streamNames(this.#parts.settings.prefix);
    const names = term.former;
    term.former = [];
    const remove = async (name: string): Promise<void> => {
      try {
        await jsm.consumers.delete(messages, name);
      } catch (error) {
        if (isWithoutAnswer(error)) term.former = [...term.former, name];
      }
    };
    await Promise.all(names.map(remove));
  }

  #formerConsumers(key: string, { epoch, base }: Slot): string[] {
    const { topic, partition } = readSlotKey(key);
    const epochs = new Set([base]);
    for (let e = epoch - 1; e > base && epochs.size < MAX_FORMER_TERMS; e--) epochs.add(e);
    return [...epochs]
      .filter((e) => e < epoch)
      .sort((a, b) => b - a)
      .map((e) => this.#parts.names.partitionConsumer(topic, partition, e));
  }

  async #findFirstUnsettled({ jsm }: Session, former: readonly string[]): Promise<number> {
    const { messages } = streamNames(this.#parts.settings.prefix);
    for (const name of former) {
      const info = await findConsumer(jsm, messages, name);
      if (info !== undefined) return info.ack_floor.stream_seq + 1;
    }
    return 1;
  }

  #createConsumer(session: Session, key: string, epoch: number, at: number): Promise<ConsumerInfo> {
    const { settings, names, window } = this.#parts;
    const { topic, partition } = readSlotKey(key);
    return createConsumer(session, settings, {
      stream: streamNames(settings.prefix).messages,
      name: names.partitionConsumer(topic, partition, epoch),
      filter: messageSubject(settings.prefix, topic, partition),
      start: { at },
      window,
    });
  }
}
