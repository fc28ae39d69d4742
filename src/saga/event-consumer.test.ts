import { expect, test } from "vitest";
import { createBus, event } from "sagabox";
import { z } from "zod";
import { saga } from "./index.ts";

const input = z.object({ id: z.string() });

/** A saga whose consumer for its event, `shop.sagas.<event>.<saga>`, has a name of so many characters. */
function waiting(characters: number) {
  const name = "s".repeat(100);
  const rest = characters - "shop.sagas..".length - name.length;
  const Paid = event(`${"e".repeat(60)}.${"f".repeat(rest - 61)}`, { schema: input, key: (d) => d.id });
  return saga(name, { version: 1, input, key: (i) => i.id }).waitFor("paid", Paid, { timeout: "1d" });
}

const bus = () => createBus({ service: "shop", database: "postgres://nobody@localhost/none", log: false });

test("a saga whose consumer would have too long a name is refused when it is registered", () => {
  expect(() => bus().register(waiting(256))).toThrowError(/256 characters; 255 are allowed/);
});

test("a name of just the length that is allowed is good", () => {
  const shop = bus();
  shop.register(waiting(255));
  expect(shop.topology().groups.map(({ group }) => group.length)).toContain(255);
});

test("a child's name is looked at too", () => {
  const parent = saga("parent", { version: 1, input, key: (i) => i.id })
    .child("part", waiting(256), (c) => c.input)
    .undoChild();
  expect(() => bus().register(parent)).toThrowError(/Shorten the name/);
});
