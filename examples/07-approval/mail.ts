const sent = new Map<string, string>();

/** A mail provider that sends a letter once for each key. */
export const mail = {
  async send(key: string, to: string, subject: string): Promise<void> {
    sent.set(key, `${to}: ${subject}`);
  },
  about(subject: string): number {
    return [...sent.values()].filter((letter) => letter.endsWith(subject)).length;
  },
};
