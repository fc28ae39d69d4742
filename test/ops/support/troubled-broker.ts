import type { Message } from "sagabox";
import { MemoryTransport } from "sagabox/testing";
import type { Lag, PlannedGroup, PublishOptions, PublishOutcome } from "sagabox/transport";

/** A broker that goes down, fills up, and has opinions about messages. */
export class TroubledBroker extends MemoryTransport {
  /** How much it says waits in a topic; 0 unless set. */
  readonly waiting = new Map<string, number>();
  /** What becomes of messages of these types; all others are taken. */
  readonly opinions = new Map<string, "rejected" | "refused">();

  constructor() {
    super({ record: false });
  }

  depths(topics: readonly string[]): Promise<ReadonlyMap<string, number>> {
    return Promise.resolve(new Map(topics.map((topic) => [topic, this.waiting.get(topic) ?? 0])));
  }

  /** What waits has an unknown age. */
  override async lags(groups: readonly PlannedGroup[]): Promise<readonly Lag[]> {
    await super.lags(groups); // fails while it is down
    return groups.flatMap(({ group, topics }) =>
      topics.map(({ topic }): Lag => {
        const waiting = this.waiting.get(topic) ?? 0;
        return { group, topic, waiting, oldestAgeSeconds: waiting === 0 ? 0 : "unknown" };
      }),
    );
  }

  override async publish(
    batch: readonly Message[],
    options: PublishOptions,
  ): Promise<readonly PublishOutcome[]> {
    const outcomes = await super.publish(batch, options);
    return outcomes.map((outcome, index) => {
      const kind = this.opinions.get(batch[index]?.type ?? "");
      return kind === undefined ? outcome : { kind, error: new Error("not with me") };
    });
  }
}
