// Reports dead letters to a function in the process or to an HTTP endpoint. Notices run outside the message
// flow and cannot delay or fail it. A notice that fails is retried a few times, reported and dropped.
export { Notices, type DeadLetterNotice, type NoticesOptions } from "./notices.ts";
export { readNoticeSettings } from "./options.ts";
export type { NoticeSettings, NotifyOptions, OnDeadLetter, WebhookOptions } from "./options.ts";
