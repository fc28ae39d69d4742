import { expect, test } from "vitest";
import { readNoticeSettings } from "./options.ts";

const webhook = (url: string, more: object = {}) =>
  readNoticeSettings(undefined, { webhook: { url, ...more } }).webhook;

test.each(["https://example.org/hook", "http://localhost:1/x", "http://127.0.0.1/x", "http://[::1]:8/x"])(
  "E6: %s is accepted",
  (url) => {
    expect(webhook(url)?.url.href).toBe(new URL(url).href);
  },
);

test.each([
  ["http://example.org/t0ken", "https"],
  ["http://127.0.0.1.example.org/t0ken", "https"],
  ["http://localhost.example.org/t0ken", "https"],
  ["ftp://localhost/t0ken", "https"],
  ["/t0ken", "absolute"],
  ["https://user:t0ken@example.org/", "password"],
])("E6: %s is refused, without repeating it", (url, why) => {
  expect(() => webhook(url)).toThrow(expect.objectContaining({ code: "OPTIONS_INVALID" }));
  expect(() => webhook(url)).toThrow(why);
  expect(() => webhook(url)).not.toThrow("t0ken");
});

test.each([
  [{ secret: "short" }, "secret"],
  [{ headers: { "content-type": "x" } }, "content-type"],
  [{ headers: { "Sagabox-Signature": "x" } }, "Sagabox-Signature"],
  [{ headers: { good: "line\nbreak" } }, "good"],
  [{ headers: { "bad name": "x" } }, "bad name"],
  [{ timeout: 0 }, "timeout"],
  [{ urll: "x" }, "urll"],
])("E6: %j is refused by name", (more, name) => {
  expect(() => webhook("https://example.org", more)).toThrow(name);
});

test("E6: without options there are no notices", () => {
  expect(readNoticeSettings()).toEqual({ onDeadLetter: null, webhook: null });
  expect(() => readNoticeSettings("no function" as never)).toThrow("onDeadLetter must be a function");
});
