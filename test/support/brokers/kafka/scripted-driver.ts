import type {
  KafkaDriver,
  NewTopic,
  ProduceAnswer,
  ProduceBatch,
  ProduceRequest,
  ProducerIdentity,
} from "../../../../src/transports/kafka/driver.ts";

type Produce = (batch: ProduceBatch, request: ProduceRequest) => number | Promise<number>;

const notScripted = (): never => {
  throw new Error("not part of this test");
};

/** A cluster that answers as it is told: codes for batches, and what topics look like. */
export class ScriptedDriver implements KafkaDriver {
  readonly produced: { readonly identity: ProducerIdentity; readonly batch: ProduceBatch }[] = [];
  readonly created: NewTopic[] = [];
  nodes = [1, 2, 3];
  partitions = 2;
  replicas = 3;
  exists = true;
  minInSync = "2";
  inFlight = 0;
  mostInFlight = 0;
  #identities = 0n;

  /** What compression leaves of each record, in bytes; 0 where nothing is said about it. */
  packedBytes = 0;

  /** The code for each batch; 0 takes it. */
  answer: Produce = () => 0;

  async describe(topics: readonly string[]) {
    const partitions = Array.from({ length: this.partitions }, () => ({
      leader: 1,
      replicas: this.replicas,
    }));
    const code = this.exists ? 0 : 3;
    return {
      nodes: this.nodes,
      topics: topics.map((name) => ({ name, id: `id of ${name}`, code, partitions })),
    };
  }

  async createTopics(topics: readonly NewTopic[]) {
    this.created.push(...topics);
    this.exists = true;
    return topics.map(({ name }) => ({ name, code: 0, detail: "" }));
  }

  async topicSettings(topics: readonly string[]) {
    return new Map(topics.map((name) => [name, new Map([["min.insync.replicas", this.minInSync]])]));
  }

  async newIdentity(): Promise<ProducerIdentity> {
    this.#identities += 1n;
    return { id: this.#identities, epoch: 0 };
  }

  async produce(_node: number, request: ProduceRequest): Promise<readonly ProduceAnswer[]> {
    this.inFlight += 1;
    this.mostInFlight = Math.max(this.mostInFlight, this.inFlight);
    try {
      const answers: ProduceAnswer[] = [];
      for (const batch of request.batches) {
        this.produced.push({ identity: request.identity, batch });
        const { topic, partition } = batch;
        const bytes = this.packedBytes * batch.records.length;
        answers.push({ topic, partition, code: await this.answer(batch, request), bytes });
      }
      return answers;
    } finally {
      this.inFlight -= 1;
    }
  }

  version = async (): Promise<number> => 1;
  fetch = notScripted;
  offsets = notScripted;
  coordinator = notScripted;
  heartbeat = notScripted;
  commit = notScripted;
  committed = notScripted;
  groups = notScripted;
  drop = (): void => undefined;
  close = async (): Promise<void> => undefined;
}
