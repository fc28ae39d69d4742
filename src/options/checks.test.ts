import { expect, test } from "vitest";
import { flag, milliseconds, oneOf, rejectUnknownKeys, text, wholeNumber } from "./checks.ts";

test("a misspelt key is refused with the key that was meant", () => {
  expect(() => rejectUnknownKeys("relay", { batchsize: 1 }, ["batchSize", "lease"])).toThrowError(
    'relay has no option "batchsize". Did you mean "batchSize"?',
  );
});

test("two letters that changed places are still recognised in a short key", () => {
  expect(() => rejectUnknownKeys("run", { prot: 1 }, ["host", "port"])).toThrowError('Did you mean "port"?');
});

test("a key that resembles nothing is refused with the list of keys", () => {
  expect(() => rejectUnknownKeys("relay", { colour: 1 }, ["batchSize", "lease"])).toThrowError(
    "Known are: batchSize, lease.",
  );
});

test("known keys pass, and so does an own key of a null-prototype object", () => {
  const options: object = Object.assign(Object.create(null), { lease: "1s" });
  expect(() => rejectUnknownKeys("relay", options, ["lease"])).not.toThrow();
});

test("what is no object is refused as such", () => {
  expect(() => rejectUnknownKeys("relay", [], [])).toThrowError("relay must be an object.");
});

test("whole numbers are held to their bounds", () => {
  expect(wholeNumber("n", 5, { min: 1, max: 5 })).toBe(5);
  for (const bad of [0, 6, 1.5, Number.NaN, "5", undefined, 5n]) {
    expect(() => wholeNumber("n", bad, { min: 1, max: 5 })).toThrowError(
      /^n must be a whole number from 1 to 5/,
    );
  }
});

test("a choice is one of its words, with a suggestion for a near miss", () => {
  expect(oneOf("mode", "hold", ["hold", "continue"])).toBe("hold");
  expect(() => oneOf("mode", "contine", ["hold", "continue"])).toThrowError('Did you mean "continue"?');
  expect(() => oneOf("mode", 1, ["hold", "continue"])).toThrowError(
    'mode must be one of "hold", "continue".',
  );
});

test("a flag is a boolean and nothing that merely looks true", () => {
  expect(flag("f", false)).toBe(false);
  expect(() => flag("f", 1)).toThrowError("f must be true or false, but is 1.");
});

test("a string is checked against its length and pattern", () => {
  expect(text("t", "abc", { pattern: /^[a-c]+$/ })).toBe("abc");
  expect(() => text("t", "")).toThrowError("t must have 1 to 255 characters, but has 0.");
  expect(() => text("t", "d", { pattern: /^[a-c]+$/ })).toThrowError("t must match /^[a-c]+$/.");
  expect(() => text("t", "d", { pattern: /^[a-c]+$/, like: "abc" })).toThrowError("t must look like abc.");
  expect(() => text("t", 1)).toThrowError("t must be a string, but is 1.");
});

test("an error about a string does not contain it", () => {
  expect(() => wholeNumber("n", "hunter2")).toThrowError(/^((?!hunter2).)*$/);
  expect(() => text("n", "hunter2", { pattern: /^x$/ })).toThrowError(/^((?!hunter2).)*$/);
});

test("durations become milliseconds within bounds", () => {
  expect(milliseconds("lease", "30s")).toBe(30_000);
  expect(milliseconds("lease", 1_500)).toBe(1_500);
  expect(() => milliseconds("lease", "soon")).toThrowError(/^lease must be a duration/);
  expect(() => milliseconds("lease", "1ms", { min: 10 })).toThrowError("lease must be from 10 ms to");
  expect(() => milliseconds("lease", "25d")).toThrowError(/^lease must be from 0 ms/);
  expect(() => milliseconds("keep", "90m", { min: 7 * 86_400_000, max: 30 * 86_400_000 })).toThrowError(
    "keep must be from 7d to 30d, but is 90m.",
  );
  expect(milliseconds("ttl", "90d", { max: Number.MAX_SAFE_INTEGER })).toBe(7_776_000_000);
});
