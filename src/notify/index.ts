// Reports dead letters to a function in the process or to an HTTP endpoint. Notices run outside the message
// flow and cannot delay or fail it. A notice that fails is retried a few times, reported and dropped.
export { Notices, type NoticesOptions } from "./notices.ts";
export type { DeadLetterNotice } from "./dead-letter-notice.ts";
export { readNoticeSettings } from "./options.ts";
export type { NoticeSettings, NotifyOptions, OnDeadLetter, WebhookOptions } from "./options.ts";
