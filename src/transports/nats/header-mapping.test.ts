import fc from "fast-check";
import { MsgHdrsImpl } from "@nats-io/transport-node";
import { beforeAll, expect, test } from "vitest";
import { natsClient } from "./client.ts";
import { fromNatsHeaders, headerBytes, toNatsHeaders } from "./header-mapping.ts";

beforeAll(async () => void (await natsClient.load()));

const throughTheWire = (headers: Record<string, string>): Record<string, string> =>
  fromNatsHeaders(MsgHdrsImpl.decode((toNatsHeaders(headers) as MsgHdrsImpl).encode()));

test("B4, E3: any string survives as a one-line header", () => {
  const name = fc.stringMatching(/^[a-z0-9][a-z0-9._-]{0,40}$/).filter((text) => !text.startsWith("nats-"));
  const value = fc.oneof(
    fc.string({ unit: "grapheme" }),
    fc.string({ unit: fc.constantFrom(" ", "\t", "\r", "\n", "%", "4", "1", "\0", ":", "ä", "\u00a0") }),
  );
  fc.assert(
    fc.property(fc.dictionary(name, value, { noNullPrototype: true }), (headers) => {
      expect(throughTheWire(headers)).toEqual(headers);
      const size = (toNatsHeaders(headers) as MsgHdrsImpl).encode().length;
      expect(headerBytes(headers)).toBeGreaterThanOrEqual(size);
    }),
    { numRuns: 2_000 },
  );
});

test("B4: a stack trace cannot inject a header", () => {
  const headers = { stack_trace: "Error: x\r\nNats-Msg-Id: forged\r\n\r\nbody" };
  expect((toNatsHeaders(headers) as MsgHdrsImpl).toString()).not.toContain("\nNats-Msg-Id");
  expect(throughTheWire(headers)).toEqual(headers);
});

test("B4: server headers are left out, and a percent sign from another producer is kept", () => {
  const given = MsgHdrsImpl.fromRecord({ "Nats-Msg-Id": ["1"], note: ["100 % and %zz and %ff"] } as never);
  expect(fromNatsHeaders(given)).toEqual({ note: "100 % and %zz and %ff" });
});

test("C2: a CloudEvents attribute is written in printable ASCII, as the NATS binding requires", () => {
  const headers = { "ce-subject": 'Euro € 😀 "100%" a/b', "ce-id": " x " };
  const written = toNatsHeaders(headers) as MsgHdrsImpl;
  expect(written.get("ce-subject")).toBe("Euro%20%E2%82%AC%20%F0%9F%98%80%20%22100%25%22%20a/b");
  expect(throughTheWire(headers)).toEqual(headers);
  expect(headerBytes(headers)).toBeGreaterThanOrEqual(written.encode().length);
});

test("C2: attributes in other spellings are read, and invalid UTF-8 stays encoded", () => {
  const given = { "Ce-Subject": ['"a \\"b\\" %e2%82%ac"'], "ce-id": ["%C0%A0"], "ce-x": ["100 %zz"] };
  expect(fromNatsHeaders(MsgHdrsImpl.fromRecord(given as never))).toEqual({
    "Ce-Subject": 'a "b" €',
    "ce-id": "\u0080%C0%A0",
    "ce-x": "100 %zz",
  });
});
