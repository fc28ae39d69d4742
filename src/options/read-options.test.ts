import { expect, expectTypeOf, test } from "vitest";
import {
  allProblems,
  milliseconds,
  option,
  Problems,
  readOptions,
  readValues,
  wholeNumber,
  type DurationOrMs,
  type OptionsFrom,
  type SettingsFrom,
} from "./index.ts";

const shopOptions = {
  name: option.string({ required: true, max: 3 }),
  port: option.number({ default: 80, max: 65_535 }),
  lease: option.duration({ default: "30s" }),
  wait: option.duration({}),
  level: option.choice(["low", "high"], { default: "low" }),
  isOpen: option.boolean({ default: false }),
  warn: option.callback<(text: string) => void>(),
  tags: option.value<readonly string[], number>({
    accepts: "string[]",
    default: [],
    check: (_, tags) => (tags as readonly string[]).length,
  }),
};

test("settings are frozen, and absent options have their defaults", () => {
  const settings = readOptions("shop", shopOptions, { name: "a", lease: "1m", tags: ["x"] });
  expect(settings).toEqual({
    name: "a",
    port: 80,
    leaseMs: 60_000,
    waitMs: undefined,
    level: "low",
    isOpen: false,
    warn: undefined,
    tags: 1,
  });
  expect(Object.isFrozen(settings)).toBe(true);
});

test("the types of options and settings follow from the table", () => {
  type Options = OptionsFrom<typeof shopOptions>;
  type Settings = SettingsFrom<typeof shopOptions>;
  expectTypeOf<Options["name"]>().toEqualTypeOf<string>();
  expectTypeOf<Options["port"]>().toEqualTypeOf<number | undefined>();
  expectTypeOf<Options["lease"]>().toEqualTypeOf<DurationOrMs | undefined>();
  expectTypeOf<Options["level"]>().toEqualTypeOf<"low" | "high" | undefined>();
  expectTypeOf<Settings["port"]>().toEqualTypeOf<number>();
  expectTypeOf<Settings["leaseMs"]>().toEqualTypeOf<number>();
  expectTypeOf<Settings["waitMs"]>().toEqualTypeOf<number | undefined>();
  expectTypeOf<Settings["tags"]>().toEqualTypeOf<number>();
});

test("fallbacks come before the defaults of the table, and after the options", () => {
  const fallback = { port: 8_080, level: "high" } as const;
  const settings = readOptions("shop", shopOptions, { name: "a", level: "low" }, { fallback });
  expect(settings).toMatchObject({ port: 8_080, level: "low" });
});

test("G11: one error reports all problems, and contains no values", () => {
  const wrong = {
    name: "hunter2",
    prot: 1,
    prt: 2,
    port: "hunter2",
    lease: "soon",
    level: "hunter2",
    warn: 1,
  };
  const read = () => readOptions("shop", shopOptions, wrong as never);
  expect(read).toThrowError(
    /^The options of shop cannot be used:\n- shop has no option "prot".*\n- shop has no option "prt".*\n- shop\.name .*\n- shop\.port .*\n- shop\.lease .*\n- shop\.level .*\n- shop\.warn [^\n]*$/,
  );
  expect(read).not.toThrowError(/hunter2/);
});

test("a single problem is thrown with its own code and text", () => {
  expect(() => readOptions("shop", shopOptions, { name: "a", prot: 1 } as never)).toThrowError(
    expect.objectContaining({
      code: "OPTIONS_UNKNOWN_KEY",
      message: 'shop has no option "prot". Did you mean "port"?',
    }),
  );
  expect(() => readOptions("shop", shopOptions, {} as never)).toThrowError(
    "shop.name must be a string, but is undefined.",
  );
});

test.each([[null], [[]], ["text"]])("%j in place of options is an error", (options) => {
  expect(() => readOptions("shop", { port: shopOptions.port }, options as never)).toThrowError(
    "shop must be an object.",
  );
});

test("values can be read without the check for unknown keys", () => {
  const given = { name: "a", other: 1 };
  expect(readValues("shop", shopOptions, given).name).toBe("a");
});

test("problems of nested options are reported one by one", () => {
  const read = () =>
    allProblems("The options", () =>
      readOptions(
        "outer",
        {
          shop: option.value<object, unknown>({
            accepts: "an object",
            check: (name, value) => readOptions(name, shopOptions, value as never),
          }),
          size: option.number({ default: 1 }),
        },
        { shop: { name: "long", port: -1 }, size: -1 },
      ),
    );
  expect(read).toThrowError(/^[^\n]*\n- outer\.shop\.name .*\n- outer\.shop\.port .*\n- outer\.size [^\n]*$/);
});

test("an error that follows from a refused value is no second problem, and a bug is thrown", () => {
  const problems = new Problems();
  problems.collect(() => milliseconds("shop.url", "soon"));
  problems.collect(() => wholeNumber("shop.url", "soon"));
  problems.collect(() => {
    throw new TypeError("nothing to read");
  });
  expect(() => problems.throwIfAny("The options")).toThrowError(/^shop\.url must be a duration/);
  expect(() =>
    new Problems().collect(() => {
      throw new TypeError("a bug");
    }),
  ).toThrowError("a bug");
});
