import {
  type KafkaDriver,
  type NewTopic,
  type ProduceAnswer,
  type ProduceBatch,
  type ProduceRequest,
  type ProducerIdentity,
  NoAnswerError,
} from "../../../src/transports/kafka/driver.ts";

type Produce = (batch: ProduceBatch, request: ProduceRequest) => number | Promise<number>;

const notScripted = (): never => {
  throw new Error("not part of this test");
};

/** A cluster with scripted answers: codes for batches, and what topics look like. */
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

/** A driver whose process can die: from then on nothing leaves it and nothing comes in. Or whose connections break. */
export class SilencedDriver implements KafkaDriver {
  readonly #inner: KafkaDriver;
  readonly #channels = new Set(["control", "produce"]);
  #silent = false;

  constructor(inner: KafkaDriver) {
    this.#inner = inner;
  }

  silence(): void {
    this.#silent = true;
  }

  /** Ends every connection; new ones may be made at once. */
  cut(): void {
    for (const channel of this.#channels) this.#inner.drop(channel);
  }

  describe: KafkaDriver["describe"] = (...args) => this.#unlessSilenced(() => this.#inner.describe(...args));
  version: KafkaDriver["version"] = (...args) => this.#unlessSilenced(() => this.#inner.version(...args));
  createTopics: KafkaDriver["createTopics"] = (...args) =>
    this.#unlessSilenced(() => this.#inner.createTopics(...args));
  topicSettings: KafkaDriver["topicSettings"] = (...args) =>
    this.#unlessSilenced(() => this.#inner.topicSettings(...args));
  newIdentity: KafkaDriver["newIdentity"] = () => this.#unlessSilenced(() => this.#inner.newIdentity());
  produce: KafkaDriver["produce"] = (...args) => this.#unlessSilenced(() => this.#inner.produce(...args));
  fetch: KafkaDriver["fetch"] = (...args) => this.#onChannel(args[0], () => this.#inner.fetch(...args));
  offsets: KafkaDriver["offsets"] = (...args) => this.#unlessSilenced(() => this.#inner.offsets(...args));
  coordinator: KafkaDriver["coordinator"] = (...args) =>
    this.#unlessSilenced(() => this.#inner.coordinator(...args));
  heartbeat: KafkaDriver["heartbeat"] = (...args) =>
    this.#onChannel(args[0], () => this.#inner.heartbeat(...args));
  commit: KafkaDriver["commit"] = (...args) => this.#unlessSilenced(() => this.#inner.commit(...args));
  committed: KafkaDriver["committed"] = (...args) =>
    this.#unlessSilenced(() => this.#inner.committed(...args));
  groups: KafkaDriver["groups"] = (...args) => this.#unlessSilenced(() => this.#inner.groups(...args));
  drop: KafkaDriver["drop"] = (channel) => this.#inner.drop(channel);
  close: KafkaDriver["close"] = () => this.#inner.close();

  #onChannel<T>(channel: string, request: () => Promise<T>): Promise<T> {
    this.#channels.add(channel);
    return this.#unlessSilenced(request);
  }

  async #unlessSilenced<T>(request: () => Promise<T>): Promise<T> {
    if (this.#silent) throw new NoAnswerError("the process is dead", false, undefined);
    const answer = await request();
    if (this.#silent) throw new NoAnswerError("the process is dead", true, undefined);
    return answer;
  }
}
