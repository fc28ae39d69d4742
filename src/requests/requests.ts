import { RequestError, SagaboxError } from "../errors/index.ts";
import type { Consumer, Lease } from "../inbox/index.ts";
import {
  replyHeader,
  replyTopicFor,
  validateReply,
  type AnyCommand,
  type InputOf,
  type Json,
  type PublishOptions,
  type ReplyOf,
  type UnpackedPayload,
} from "../message/index.ts";
import { milliseconds, type Duration } from "../options/index.ts";
import type { Compose, Outgoing, TransactionScope } from "../outbox/index.ts";
import { systemClock, withDeadline } from "../runtime/index.ts";
import type { Database, OwnedTransaction } from "../storage/index.ts";
import { failureType, type Observer, type Spans } from "../telemetry/index.ts";
import type { Answer, Replies } from "./replies.ts";

/** Options of a request. Publish options that make no sense for a caller that waits are left out. */
export interface RequestOptions extends Pick<
  PublishOptions,
  "id" | "key" | "topic" | "priority" | "ttl" | "headers" | "correlationId" | "traceparent"
> {
  /**
   * Limit for the whole call: joining the consumer group for replies, writing the command, waiting for the reply. A
   * command that was written may still run after the timeout; set `ttl` to prevent that.
   */
  readonly timeout: Duration | number;
}

export interface RequestsParts {
  readonly service: string;
  readonly database: Database;
  readonly compose: Compose;
  readonly scope: (tx: OwnedTransaction) => TransactionScope;
  readonly replies: Replies;
  /** Decrypts the personal fields in the reply to the named command. */
  readonly openReply?: (name: string, reply: Json) => Promise<UnpackedPayload>;
  /** Called at the first request, so that a service without requests has no reply consumer. */
  readonly makeConsumer: (lease: Lease | undefined) => Consumer;
  readonly observer: Observer;
  readonly spans: Spans;
}

type Outcome = "done" | "failed" | "timeout";

/** One call of `request`. Work that it started may outlive it and checks `isOver`. */
interface PendingRequest {
  readonly outgoing: Outgoing;
  readonly timeoutMs: number;
  /** On the monotonic clock. */
  readonly startedAtMs: number;
  /** Set before the command is written. After a timeout, the command may still run. */
  mayBeWritten: boolean;
  /** Set when the caller has its reply or error. */
  isOver: boolean;
  /** Stops expecting the reply. */
  forget: () => void;
}

/** Sends commands and waits for their replies. The first request starts the consumer that receives them. */
export class Requests {
  readonly #parts: RequestsParts;
  #beforeReceiving: (() => void) | undefined;
  #lease: Lease | undefined;
  #consumer: Consumer | undefined;
  #starting: Promise<void> | undefined;

  constructor(parts: RequestsParts) {
    this.#parts = parts;
  }

  /**
   * Starts accepting requests. `beforeReceiving` is called before the first one, so that the bus can reserve a connection
   * for the reply consumer. When `lease` ends, other workers of the service receive the replies.
   */
  open(beforeReceiving: () => void, lease: Lease | undefined): void {
    this.#beforeReceiving = beforeReceiving;
    this.#lease = lease;
  }

  /** Stops accepting requests and rejects waiting ones with BUS_STOPPED. */
  async close(): Promise<void> {
    this.#beforeReceiving = undefined;
    const { replies } = this.#parts;
    replies.giveUp(new SagaboxError("BUS_STOPPED", "The bus was stopped before the reply came."));
    await this.#starting?.catch(() => undefined);
    try {
      await this.#consumer?.stop();
    } finally {
      await replies.stop();
    }
  }

  /** Health of the reply consumer. Undefined before the first request. */
  health(): { readonly name: string; readonly ok: boolean } | undefined {
    return this.#consumer === undefined
      ? undefined
      : { name: this.#consumer.name, ok: this.#consumer.health().ok };
  }

  async request<C extends AnyCommand>(
    contract: C,
    data: InputOf<C>,
    { timeout, ...options }: RequestOptions,
  ): Promise<ReplyOf<C>> {
    const timeoutMs = milliseconds("request.timeout", timeout, { min: 1, max: 3_600_000 });
    if (contract?.kind !== "command") {
      throw new SagaboxError(
        "CONTRACT_INVALID",
        "request takes a command: events and streams have no reply.",
      );
    }
    const span = this.#parts.spans.request(contract.name, options.traceparent);
    // The command's span is a child of this span, which is a child of the caller's.
    const childOptions =
      span.traceparent === undefined ? options : { ...options, traceparent: span.traceparent };
    try {
      return await span.run(() => this.#sendAndAwait(contract, data, childOptions, timeoutMs));
    } catch (error) {
      span.fail({ type: failureType(error) });
      throw error;
    } finally {
      span.end();
    }
  }

  async #sendAndAwait<C extends AnyCommand>(
    contract: C,
    data: InputOf<C>,
    options: PublishOptions,
    timeoutMs: number,
  ): Promise<ReplyOf<C>> {
    const startedAtMs = systemClock.monotonicMs();
    const outgoing = withReplyHeaders(
      await this.#parts.compose(contract, data, options),
      this.#parts.service,
    );
    const request: PendingRequest = {
      outgoing,
      timeoutMs,
      startedAtMs,
      mayBeWritten: false,
      isOver: false,
      forget: () => undefined,
    };
    const remainingMs = Math.max(0, timeoutMs - (systemClock.monotonicMs() - startedAtMs));
    try {
      const answer = await withDeadline(this.#awaitAnswer(request), remainingMs, () => "timeout" as const);
      return await this.#conclude(contract, request, answer);
    } finally {
      request.isOver = true;
      request.forget();
    }
  }

  async #awaitAnswer(request: PendingRequest): Promise<Answer> {
    await this.#ensureReceiving();
    if (request.isOver) throw notSentError();
    // Expect the reply before the command is sent, so that no reply is missed.
    const { answer, forget } = this.#parts.replies.expect(request.outgoing.message.id);
    request.forget = forget;
    await this.#send(request);
    return answer;
  }

  async #conclude<C extends AnyCommand>(
    contract: C,
    request: PendingRequest,
    answer: Answer | "timeout",
  ): Promise<ReplyOf<C>> {
    const outcome: Outcome = answer === "timeout" ? answer : answer.outcome;
    const durationMs = systemClock.monotonicMs() - request.startedAtMs;
    const { traceparent } = request.outgoing.message;
    this.#parts.observer.emit(
      "request.settled",
      { type: contract.name, outcome, durationMs },
      { traceparent },
    );
    if (answer === "timeout") throw timeoutError(contract.name, request);
    if (answer.outcome === "failed") throw failureError(contract.name, request.outgoing.message.id, answer);
    if (answer.sealed === undefined || answer.reply === undefined || this.#parts.openReply === undefined) {
      return validateReply(contract, answer.reply) as ReplyOf<C> | Promise<ReplyOf<C>>;
    }
    const { data, hidden } = await this.#parts.openReply(contract.name, answer.reply);
    // A reply with hidden fields would not match the schema, so it is returned without validation.
    return (hidden.length > 0 ? data : await validateReply(contract, data)) as ReplyOf<C>;
  }

  async #send(request: PendingRequest): Promise<void> {
    const tx = await this.#parts.database.begin();
    const scope = this.#parts.scope(tx);
    try {
      // The caller has already got a timeout error saying that the command will not be sent.
      if (request.isOver) throw notSentError();
      request.mayBeWritten = true;
      await scope.add(request.outgoing);
      scope.handleCommit(await tx.commit(scope.lastStatements(), scope.afterword()));
    } catch (error) {
      await tx.rollback();
      throw error;
    }
  }

  async #ensureReceiving(): Promise<void> {
    const prepare = this.#beforeReceiving;
    if (prepare === undefined) {
      throw new SagaboxError(
        "BUS_NOT_RUNNING",
        "A request needs a running bus, since its reply arrives there. Call bus.run() first; its `parts`, if you name " +
          'any, must hold "consumers".',
      );
    }
    this.#starting ??= this.#start(prepare).catch((error: unknown) => {
      this.#starting = undefined;
      this.#consumer = undefined;
      throw error;
    });
    await this.#starting;
  }

  async #start(prepare: () => void): Promise<void> {
    prepare();
    await this.#parts.replies.start();
    this.#consumer = this.#parts.makeConsumer(this.#lease);
    await this.#consumer.start();
  }
}

function withReplyHeaders(outgoing: Outgoing, service: string): Outgoing {
  const headers = { ...outgoing.message.headers, [replyHeader]: replyTopicFor(service) };
  return { ...outgoing, message: { ...outgoing.message, headers } };
}

function timeoutError(name: string, { outgoing, timeoutMs, mayBeWritten }: PendingRequest): RequestError {
  const requestId = outgoing.message.id;
  const text = mayBeWritten
    ? `No reply to "${name}" came within ${timeoutMs} ms. The command may still be carried out: ask again with the ` +
      `same id (${requestId}) to get its reply instead of a second effect.`
    : `"${name}" could not be sent within ${timeoutMs} ms, and will not be: the database or the broker that brings the ` +
      "reply did not answer in that time.";
  return new RequestError("REQUEST_TIMEOUT", text, { requestId });
}

// Stops the work of a request that is over. The caller never sees this error: its request has timed out already.
function notSentError(): Error {
  return new Error("the request was over before it was sent");
}

function failureError(
  name: string,
  requestId: string,
  { reason, error }: Extract<Answer, { outcome: "failed" }>,
): RequestError {
  return new RequestError("REQUEST_FAILED", `"${name}" was given up (${reason}): ${error}`, {
    requestId,
    reason,
  });
}
