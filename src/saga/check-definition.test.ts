import { expect, test } from "vitest";
import { z } from "zod";
import { saga } from "./index.ts";

const order = saga("order", { version: 1, input: z.object({ id: z.string() }), key: (i) => i.id });

test("a `when` without a step is refused: there would be nothing to choose", () => {
  const empty = () =>
    order.when(
      "gift",
      () => true,
      (s) => s,
    );
  expect(empty).toThrowError('saga "order", step "gift": the way "taken" is empty');
});

test("a way without a step is refused; what is nothing to do is left out, and chosen by null", () => {
  const empty = () =>
    order.choose("parcel", () => "plain", {
      gift: (s) => s.run("card", () => 1).noUndo("paper only"),
      plain: (s) => s,
    });
  expect(empty).toThrowError('saga "order", step "parcel": the way "plain" is empty');
  const whole = order.choose("parcel", () => null, {
    gift: (s) => s.run("card", () => 1).noUndo("paper only"),
  });
  expect(whole.definition.nodes).toHaveLength(1);
});

test("an empty block inside a block is refused as well", () => {
  const nested = () =>
    order.repeat(
      "again",
      (s) =>
        s
          .run("work", () => 1)
          .noUndo("none")
          .when(
            "now",
            () => true,
            (inner) => inner,
          ),
      () => true,
      { max: 2 },
    );
  expect(nested).toThrowError('step "now": the way "taken" is empty');
});
