/** What a saga that lost its person says of itself: by this text it is found again and may be ended. */
export const ERASED = "the person it was about was erased";
