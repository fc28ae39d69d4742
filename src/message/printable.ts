/** False when half of a surrogate pair stands alone. Node has had the method since 20; our library target has not. */
export function isWellFormed(text: string): boolean {
  return (text as string & { isWellFormed(): boolean }).isWellFormed();
}

/** False when a text has control characters or broken Unicode, which indexes, logs or brokers cannot carry. */
export function isPrintable(text: string): boolean {
  return !/\p{Cc}/u.test(text) && isWellFormed(text);
}
