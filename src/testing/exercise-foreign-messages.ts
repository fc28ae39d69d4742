import { deepStrictEqual, ok, strictEqual } from "node:assert/strict";
import { sleep } from "../runtime/index.ts";
import { toWire, type DeadLetterNote } from "../transport/index.ts";
import { ackAll, QUIET_MS, type ExerciseCases } from "./exercise-case.ts";

const NOTE: DeadLetterNote = {
  error_type: "TypeError",
  error_message: 'no "total" in it: 東京\nsecond line',
  stack_trace: "TypeError: no total\n    at bill (bill.ts:7:3)",
  retry_count: "4",
  failed_at: "2026-01-02T03:04:05.678Z",
  source_topic: "events.order.placed",
  consumer_group: "billing",
  original_timestamp: "2026-01-02T03:04:05.123456Z",
};

const INVALID_UTF8 = Uint8Array.of(0xff, 0x00, 0xfe, 0x7b);

/** Bytes that are no message, and messages that nobody can handle. */
export const foreignMessageCases: ExerciseCases = {
  "bytes that are no message come with the reason, can be settled, and hold nobody up": {
    needs: ["putForeign"],
    run: async (stage) => {
      const member = await stage.addMember();
      for (const body of [INVALID_UTF8, new TextEncoder().encode('{"half":'), new Uint8Array()]) {
        await stage.putForeign(body);
      }
      await stage.publish(stage.message({ id: "ours" }));
      const all = await member.waitForDeliveries(4);
      const strangers = all.filter(({ flaw }) => flaw !== undefined);
      strictEqual(strangers.length, 3);
      ok(strangers.every(({ flaw }) => flaw instanceof Error));
      strictEqual(new Set(strangers.map(({ message }) => message.id)).size, 3);
      ok(strangers.every(({ message }) => message.topic === stage.topic));
      for (const delivery of all) await delivery.ack();
      await member.close();
      const next = await stage.addMember({ receive: ackAll });
      await sleep(QUIET_MS);
      deepStrictEqual(next.names, []);
    },
  },
  "a dead letter keeps its body and headers, has the note beside them, and does not come again": {
    needs: ["deadLetters"],
    run: async (stage) => {
      const member = await stage.addMember();
      const headers = { ends: "  x  ", foreign: "Grüße, 東京 😀", "x-tenant": "acme" };
      const data = JSON.stringify({ text: "語 😀 \u2028" });
      const dead = stage.message({ id: "dead", key: "k", data, headers });
      await stage.publish(dead);
      const [delivery] = await member.waitForDeliveries(1);
      ok(delivery?.deadLetter !== undefined, "the delivery has no deadLetter()");
      await delivery.deadLetter(NOTE);
      await delivery.ack();
      await stage.publish(stage.message({ id: "next", key: "k" }));
      await (await member.waitForDeliveries(2))[1]?.ack();
      const [copy] = await stage.deadLetters(1);
      strictEqual(new TextDecoder().decode(copy?.body), toWire(dead).body.toString());
      const found = { ...copy?.headers };
      const wanted = { ...headers, ...NOTE };
      deepStrictEqual(Object.fromEntries(Object.keys(wanted).map((name) => [name, found[name]])), wanted);
      deepStrictEqual(member.names, ["dead", "next"]);
    },
  },
  "bytes that are no message can be put among the dead letters, unchanged": {
    needs: ["putForeign", "deadLetters"],
    run: async (stage) => {
      const member = await stage.addMember();
      await stage.putForeign(INVALID_UTF8);
      const [delivery] = await member.waitForDeliveries(1);
      await delivery?.deadLetter?.(NOTE);
      await delivery?.ack();
      const [copy] = await stage.deadLetters(1);
      deepStrictEqual([...(copy?.body ?? [])], [...INVALID_UTF8]);
      strictEqual(copy?.headers["error_type"], NOTE.error_type);
    },
  },
};
