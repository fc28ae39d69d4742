import { randomBytes } from "node:crypto";
import { describe, expect, test } from "vitest";
import { encodeEnvelope } from "../../../src/message/index.ts";
import { aMessage } from "../../support/messages.ts";
import { ackAll, Member, missing, newPrefix, publish, createTransport, rawTopic } from "./harness.ts";

describe.skipIf(missing)("large records at Kafka", () => {
  test("B1: a record larger than what is asked for at once is read, and so is what comes behind it", async () => {
    const prefix = newPrefix();
    const transport = createTransport({ prefix, topics: { maxBytes: 4_000_000, partitions: 1 } });
    const member = await Member.of(transport, { receive: ackAll });
    await publish(transport, aMessage({ id: "first", key: "k" }));
    await member.got(1);
    const data = JSON.stringify({ picture: randomBytes(1_300_000).toString("base64") });
    const large = aMessage({ id: "large", key: "k", data });
    await rawTopic(`${prefix}events.order.placed`).write(Buffer.from(encodeEnvelope(large)), [], "k");
    await publish(transport, aMessage({ id: "last", key: "k" }));
    await member.got(3);
    expect(member.ids).toEqual(["first", "large", "last"]);
  });
});
