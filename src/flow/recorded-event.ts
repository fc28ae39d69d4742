/** One event of a path, as the watching consumer saw it. Times are ISO 8601 in UTC. */
export interface RecordedEvent {
  readonly flow: string;
  readonly messageId: string;
  readonly correlationId: string;
  readonly type: string;
  /** The message being handled when it was published. */
  readonly causationId: string | null;
  /** The service that published it. */
  readonly source: string;
  readonly key: string | null;
  /** When it was published, by the clock of the publisher's database. */
  readonly happenedAt: string;
  /** When it was seen here. */
  readonly recordedAt: string;
}
