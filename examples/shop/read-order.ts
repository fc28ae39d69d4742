import type { IncomingMessage } from "node:http";
import { z } from "zod";
import type { NewOrder } from "./shop.ts";

/** A body that is no order, with the reason the client gets. */
export class BadRequest extends Error {
  /** The body is longer than the limit. */
  readonly isTooLong: boolean;

  constructor(reason: string, { isTooLong = false } = {}) {
    super(reason);
    this.isTooLong = isTooLong;
  }
}

const MAX_BODY_BYTES = 16_384;

const text = z
  .string()
  .trim()
  .min(1)
  .max(100)
  .regex(/^\P{Cc}*$/u, "must not hold control characters")
  .regex(/^\P{Cs}*$/u, "must not hold a lone surrogate, which is half a character");
const newOrder = z.strictObject({
  sku: text,
  quantity: z.number().int().min(1).max(1_000),
  customerId: text,
});

/** The body of POST /orders, or the reason why it is invalid. */
export async function readOrder(request: IncomingMessage): Promise<NewOrder> {
  const type = request.headers["content-type"]?.split(";", 1)[0]?.trim().toLowerCase() || "none";
  if (type !== "application/json") {
    throw new BadRequest(`The content type must be application/json, but it is ${type}.`);
  }
  const order = newOrder.safeParse(parse(await readBody(request)));
  if (order.success) return order.data;
  const problems = order.error.issues.map(
    ({ path, message }) => `${path.join(".") || "the body"}: ${message}`,
  );
  throw new BadRequest(problems.join("; "));
}

async function readBody(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > MAX_BODY_BYTES) {
      throw new BadRequest(`The body is larger than ${MAX_BODY_BYTES} bytes.`, { isTooLong: true });
    }
    chunks.push(chunk);
  }
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(Buffer.concat(chunks));
  } catch {
    throw new BadRequest("The body is not valid UTF-8.");
  }
}

function parse(body: string): unknown {
  if (body.trim() === "") throw new BadRequest("The body is empty; send a JSON object.");
  try {
    return JSON.parse(body);
  } catch {
    throw new BadRequest("The body is not valid JSON.");
  }
}
