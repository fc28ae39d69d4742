/** A record of an AWS Lambda event, for `bus.handle`. */
export interface LambdaRecord {
  readonly id?: string;
  readonly topic: string;
  readonly key: string | null;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
  readonly attempt?: number;
  /** What a partial batch response names if the record fails. */
  readonly itemIdentifier: string | KafkaItemIdentifier;
  /** Records of one group are handled in order: if one fails, those behind it are not handled. Null: there is no order. */
  readonly group: string | null;
}

export interface KafkaItemIdentifier {
  /** Topic and partition number: "orders-0". */
  readonly partition: string;
  readonly offset: number;
}

/** The event of Amazon MSK or another Kafka cluster. */
export interface LambdaKafkaEvent {
  readonly records: Readonly<Record<string, readonly LambdaKafkaRecord[]>>;
}

interface LambdaKafkaRecord {
  readonly topic: string;
  readonly partition: number;
  readonly offset: number;
  /** Base64. */
  readonly key?: string | null;
  /** Base64. */
  readonly value?: string | null;
  readonly headers?: readonly Readonly<Record<string, readonly number[]>>[];
}

/** The event of a RabbitMQ broker of Amazon MQ. */
export interface LambdaRabbitmqEvent {
  readonly rmqMessagesByQueue: Readonly<Record<string, readonly LambdaRabbitmqMessage[]>>;
}

interface LambdaRabbitmqMessage {
  readonly basicProperties: {
    readonly contentType?: string | null;
    readonly messageId?: string | null;
    readonly headers?: Readonly<Record<string, unknown>> | null;
  };
  /** Base64. */
  readonly data: string;
}

/** The event of an SQS queue. */
export interface LambdaSqsEvent {
  readonly Records: readonly LambdaSqsRecord[];
}

interface LambdaSqsRecord {
  readonly messageId: string;
  readonly body: string;
  readonly attributes: Readonly<Record<string, string | undefined>>;
  readonly messageAttributes: Readonly<Record<string, { readonly stringValue?: string | undefined }>>;
  readonly eventSourceARN: string;
}

/** Reads the records of a Kafka event. The records of a partition are one group. */
export function kafkaRecords({ records }: LambdaKafkaEvent): LambdaRecord[] {
  return Object.entries(records).flatMap(([partition, batch]) =>
    batch.map(({ topic, offset, key, value, headers = [] }) => ({
      id: `${partition}-${offset}`,
      topic,
      key: key ? decodeBase64(key).toString("utf8") : null,
      headers: Object.fromEntries(
        headers.flatMap(Object.entries).map(([name, bytes]) => [name, toText(bytes)]),
      ),
      body: decodeBase64(value ?? ""),
      itemIdentifier: { partition, offset },
      group: partition,
    })),
  );
}

/** Reads the messages of a RabbitMQ event. The messages of a queue are one group. Lambda repeats the whole batch if one fails. */
export function rabbitmqRecords({ rmqMessagesByQueue }: LambdaRabbitmqEvent): LambdaRecord[] {
  return Object.entries(rmqMessagesByQueue).flatMap(([queue, messages]) =>
    messages.map(({ basicProperties: { contentType, messageId, headers }, data }) => ({
      ...(messageId ? { id: messageId } : {}),
      topic: queue.split("::")[0] ?? queue,
      key: null,
      headers: {
        ...Object.fromEntries(Object.entries(headers ?? {}).map(([name, value]) => [name, toText(value)])),
        ...(contentType ? { "content-type": contentType } : {}),
      },
      body: decodeBase64(data),
      itemIdentifier: messageId ?? "",
      group: queue,
    })),
  );
}

/** Reads the messages of an SQS event. Message attributes are headers. The messages of a FIFO message group are one group. */
export function sqsRecords({ Records }: LambdaSqsEvent): LambdaRecord[] {
  return Records.map(({ messageId, body, attributes, messageAttributes, eventSourceARN }) => ({
    id: messageId,
    topic: eventSourceARN.split(":").at(-1) ?? eventSourceARN,
    key: attributes["MessageGroupId"] ?? null,
    headers: Object.fromEntries(
      Object.entries(messageAttributes).map(([name, { stringValue = "" }]) => [name, stringValue]),
    ),
    body: Buffer.from(body),
    attempt: Math.max(1, Number(attributes["ApproximateReceiveCount"] ?? 1)),
    itemIdentifier: messageId,
    group: attributes["MessageGroupId"] ?? null,
  }));
}

const decodeBase64 = (text: string): Buffer => Buffer.from(text, "base64");

// Lambda writes the bytes of a header as signed numbers, and strings of RabbitMQ as { bytes: […] }.
function toText(value: unknown): string {
  const bytes: unknown = Array.isArray(value) ? value : (value as { readonly bytes?: unknown } | null)?.bytes;
  if (Array.isArray(bytes)) return Buffer.from(bytes as number[]).toString("utf8");
  return typeof value === "string" ? value : (JSON.stringify(value) ?? "");
}
