from reach_cli.demo_agents.summarizer import summarise

TEXT = "Cats sleep all day. The weather is mild. Cats sleep at night, and cats purr. Dogs bark."


def test_the_sentences_with_the_commonest_words_stay_in_their_order() -> None:
    assert summarise(TEXT, 2, []) == "Cats sleep all day. Cats sleep at night, and cats purr."


def test_what_is_asked_about_counts_more() -> None:
    assert summarise(TEXT, 1, ["weather", "mild"]) == "The weather is mild."


def test_a_text_without_words() -> None:
    assert summarise("1 2 3", 1, []) == "1 2 3"
