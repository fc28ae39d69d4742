/** An event as the watching consumer recorded it. Times are ISO 8601 in UTC. */
export interface RecordedEvent {
  readonly flow: string;
  readonly messageId: string;
  readonly correlationId: string;
  readonly type: string;
  /** Id of the message whose handler published it; null when it was published outside a handler. */
  readonly causationId: string | null;
  /** The service that published it. */
  readonly source: string;
  readonly key: string | null;
  /** Time of publication, from the clock of the publisher's database. */
  readonly happenedAt: string;
  /** Time of recording, from the clock of the watching database. */
  readonly recordedAt: string;
}
